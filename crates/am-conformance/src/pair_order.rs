//! How many messages of a pair come before one that was sent earlier: for transports that can be told not to keep
//! the order.

use am_core::{Address, Endpoint, Handlers, Payload, Rank, Span, Token, Transport};

/// What a rank has seen: the numbers of requests and replies, as they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairOrder {
    /// Requests.
    pub requests: Vec<u32>,
    /// Replies.
    pub replies: Vec<u32>,
}

impl PairOrder {
    /// The program of ranks 0 and 1: rank 0 sends `count` Short, Medium and Long requests in turn, which rank 1
    /// answers in one of three ways. If they `compute` between their calls, messages pile up now and then.
    ///
    /// # Panics
    /// If the transport refuses anything.
    pub fn exchange<T: Transport>(transport: T, count: u32, compute: bool) -> Self {
        let mut handlers = Handlers::<Self>::new();
        let reply = handlers.reply("reply", |order: &mut Self, _: Address, number: u32, _: Payload<'_>| {
            order.replies.push(number);
        });
        let reply = reply.expect("the table has room");
        let ask = move |order: &mut Self, token: Token<'_>, number: u32, _: Payload<'_>| {
            order.requests.push(number);
            let sent = match number % 5 {
                0 | 3 => token.reply(reply, number),
                1 => token.reply_medium(reply, number, &[1; 100]),
                _ => token.reply_long(reply, number, &[2; 700], 0),
            };
            sent.expect("replies have their room");
        };
        let ask = handlers.request("ask", ask).expect("the table has room");
        let mut endpoint = Endpoint::attach(transport, handlers, Self::default()).expect("all ranks attach");
        let all = count as usize;
        if endpoint.rank() == Rank(0) {
            for number in 0..count {
                let sent = match number % 3 {
                    0 => endpoint.request(Rank(1), ask, number),
                    1 => endpoint.request_medium(Rank(1), ask, number, &[3; 200]),
                    _ => endpoint.request_long(Rank(1), ask, number, &[4; 3000], 4096),
                };
                sent.expect("rank 1 is there");
                if compute {
                    endpoint.charge(Span::from_micros(u64::from(number * 7 % 30)));
                }
            }
            endpoint.wait_until(|order| order.replies.len() == all).expect("rank 1 answers");
        } else if compute {
            while endpoint.state().requests.len() < all {
                let handled = endpoint.state().requests.len() as u64;
                endpoint.charge(Span::from_micros(handled * 11 % 40));
                endpoint.poll().expect("rank 0 is there");
            }
        }
        endpoint.finish().expect("both ranks finish")
    }

    /// How many requests were handled, and how many replies came, before one that was sent earlier, out of what
    /// ranks 0 and 1 have seen. Replies are sent in the order in which requests are handled.
    ///
    /// # Panics
    /// If a message is missing.
    pub fn overtakers([first, second]: [&Self; 2]) -> (usize, usize) {
        assert_eq!(first.replies.len(), second.requests.len(), "every request is answered");
        let mut place = vec![0; second.requests.len()];
        second.requests.iter().zip(0..).for_each(|(number, at)| place[*number as usize] = at);
        let replies: Vec<u32> = first.replies.iter().map(|number| place[*number as usize]).collect();
        (late(&second.requests), late(&replies))
    }
}

/// How many numbers come behind a larger one.
fn late(numbers: &[u32]) -> usize {
    let mut largest = 0;
    let late = |number: &&u32| {
        largest = largest.max(**number);
        **number < largest
    };
    numbers.iter().filter(late).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_behind_a_later_one_is_counted() {
        let first = PairOrder { requests: vec![], replies: vec![2, 0, 1, 3] };
        let second = PairOrder { requests: vec![0, 2, 1, 3], replies: vec![] };
        // Replies 2, 0, 1, 3 were sent as the second, first, third and fourth.
        assert_eq!(PairOrder::overtakers([&first, &second]), (1, 1));
    }
}
