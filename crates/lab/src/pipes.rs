//! Programs whose output goes into a pipe that nobody reads any more.

use std::panic;
use std::process;

/// What a shell sees of a program that the signal of a broken pipe has ended.
const BROKEN_PIPE: i32 = 128 + 13;

/// From here on the program ends with code 141 once nobody reads its output any more, as with
/// `program | head -1`, and does not report a panic.
pub fn end_with_the_reader() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if text.starts_with("failed printing to") && text.contains("Broken pipe") {
            process::exit(BROKEN_PIPE);
        }
        report(panic);
    }));
}
