//! Panics of the engine, caught and converted to text.
//!
//! The engine panics if it finds its own state impossible. That state belongs to one group; the other groups
//! continue.

use std::cell::{Cell, RefCell};
use std::panic::{catch_unwind, set_hook, take_hook, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}
static HOOK: Once = Once::new();

/// Runs `work`; a panic is returned as its text and source position, and is not printed.
pub fn run<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    HOOK.call_once(install);
    INSIDE.with(|inside| inside.set(true));
    // The group is never used again after a panic, so a broken invariant cannot be observed.
    let done = catch_unwind(AssertUnwindSafe(work));
    INSIDE.with(|inside| inside.set(false));
    done.map_err(|_| TEXT.with(|text| text.take()))
}

fn install() {
    let previous = take_hook();
    set_hook(Box::new(move |info| {
        if !INSIDE.with(Cell::get) {
            return previous(info);
        }
        let payload = info.payload();
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without text");
        let place = info.location().map_or_else(String::new, |place| {
            format!(" ({}:{})", place.file().rsplit('/').next().unwrap_or(""), place.line())
        });
        TEXT.with(|kept| *kept.borrow_mut() = format!("{text}{place}"));
    }));
}
