//! What handlers are told and what they may ask for: categories, ranges, reply bounds of single requests, bytes in
//! place.

use am_core::loopback::{LoopbackConfig, network, single};
use am_core::{Category, Endpoint, HandlerResult, Handlers, Rank, SendError, Words};

#[test]
fn a_short_message_and_an_empty_medium_differ() {
    let mut handlers = Handlers::<Vec<Category>>::new();
    let note = handlers.one_way("note", |seen: &mut Vec<Category>, _, (), payload| seen.push(payload.category()));
    let note = note.unwrap();
    let config = LoopbackConfig::default().segment(8);
    let mut endpoint = Endpoint::attach(network(1, config).pop().unwrap(), handlers, Vec::new()).unwrap();
    endpoint.request(Rank(0), note, ()).unwrap();
    endpoint.request_medium(Rank(0), note, (), &[]).unwrap();
    endpoint.request_long(Rank(0), note, (), &[], 0).unwrap();
    endpoint.wait_until(|seen| seen.len() == 3).unwrap();
    assert_eq!(endpoint.finish().unwrap(), [Category::Short, Category::Medium, Category::Long]);
}

#[test]
fn ranges_work_in_both_directions() {
    let mut handlers = Handlers::<Vec<(u8, Vec<u32>)>>::new();
    let answers = handlers.reply_range("answers", 256, |seen: &mut Vec<_>, _, number, words, _| {
        seen.push((number, words.iter().collect::<Vec<u32>>()));
    });
    let answers = answers.unwrap();
    let calls =
        handlers.request_range("calls", 256, 64, move |_, token, number, words, payload| -> HandlerResult {
            token.reply_medium(answers.at(255 - number).unwrap(), *words, &payload.to_vec())?;
            Ok(())
        });
    let calls = calls.unwrap();
    let mut endpoint = Endpoint::attach(single(), handlers, Vec::new()).unwrap();
    let sixteen: Vec<u32> = (0..16).collect();
    for number in [0, 1, 128, 255] {
        let words = Words::from_slice(&sixteen[..usize::from(number) % 17]).unwrap();
        endpoint.request(Rank(0), calls.at(number).unwrap(), words).unwrap();
    }
    endpoint.wait_until(|seen| seen.len() == 4).unwrap();
    let expected = [0, 1, 128, 255].map(|number| (255 - number, sixteen[..usize::from(number) % 17].to_vec()));
    assert_eq!(endpoint.finish().unwrap(), expected);
}

#[test]
fn requests_bound_their_own_replies() {
    let mut handlers = Handlers::<Vec<usize>>::new();
    let reply = handlers.reply("reply", |seen: &mut Vec<usize>, _, (), payload| seen.push(payload.len())).unwrap();
    let ask = handlers.request_bounded("ask", 100, move |_, token, (), _| -> HandlerResult {
        let len = token.max_reply();
        token.reply_medium(reply, (), &vec![0; len])?;
        Ok(())
    });
    let ask = ask.unwrap();
    let mut endpoint = Endpoint::attach(single(), handlers, Vec::new()).unwrap();
    for bound in [0, 7, 100] {
        endpoint.request(Rank(0), ask.reply_up_to(bound), ()).unwrap();
    }
    endpoint.request(Rank(0), ask, ()).unwrap();
    let refused = endpoint.request(Rank(0), ask.reply_up_to(101), ()).unwrap_err();
    assert_eq!(refused, SendError::ReplyBound { handler: "ask".into(), bound: 101, limit: 100 });
    assert!(endpoint.request(Rank(0), ask.reply_up_to(u32::MAX), ()).is_err());
    endpoint.wait_until(|seen| seen.len() == 4).unwrap();
    assert_eq!(endpoint.finish().unwrap(), [0, 7, 100, 100]);
}

#[test]
fn bytes_of_this_process_are_seen_in_place() {
    let mut handlers = Handlers::<Vec<Option<Vec<u8>>>>::new();
    let note = handlers.one_way("note", |seen: &mut Vec<_>, _, (), payload| {
        seen.push(payload.as_bytes().map(<[u8]>::to_vec));
    });
    let note = note.unwrap();
    let config = LoopbackConfig::default().segment(8);
    let mut endpoint = Endpoint::attach(network(1, config).pop().unwrap(), handlers, Vec::new()).unwrap();
    endpoint.request_medium(Rank(0), note, (), &[1, 2]).unwrap();
    // A segment can be written by peers while the handler runs.
    endpoint.request_long(Rank(0), note, (), &[3], 0).unwrap();
    endpoint.wait_until(|seen| seen.len() == 2).unwrap();
    assert_eq!(endpoint.finish().unwrap(), [Some(vec![1, 2]), None]);
}
