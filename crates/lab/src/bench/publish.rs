//! The end of every bench: the table on the terminal and, after a full run, the JSON file and the picture.

use std::path::Path;

use super::chart::Chart;
use super::command::Mode;
use super::summary::Summary;

/// Shows what was measured; a full run also writes `target/summary/<bench>.json`, `.md` and
/// `.svg`.
/// `scratch` is the folder that cargo gives the bench, inside the target directory.
pub fn publish(summary: &Summary, mode: Mode, scratch: &Path, chart: impl FnOnce(&Summary) -> Chart) {
    // Single iterations, as a test run makes them, are no figures.
    if summary.figures().is_empty() {
        return;
    }
    println!("\n{}", summary.table());
    match mode {
        Mode::Test | Mode::CriterionOnly => {}
        Mode::Partial => println!("part of the bench: target/summary/{}.json is left as it is", summary.bench()),
        Mode::Full => {
            // Cargo gives benches a folder of their own inside the target directory.
            let target = scratch.parent().expect("that folder has a parent");
            let json = summary.write_json(target).expect("the target directory is writable");
            let markdown = summary.write(target, "md", &summary.markdown());
            let markdown = markdown.expect("the target directory is writable");
            let svg = chart(summary).svg();
            let svg = summary.write(target, "svg", &svg).expect("the target directory is writable");
            println!("written: {}, {} and {}", json.display(), markdown.display(), svg.display());
        }
    }
}
