//! What the last panic of a thread said, and where it was. Only a hook is told that, and it is told before anybody knows
//! whether the panic concerns a device.

use std::cell::RefCell;
use std::panic::PanicHookInfo;
use std::sync::Once;

thread_local!(static LAST: RefCell<Option<String>> = const { RefCell::new(None) });

/// From now on panics are remembered, besides whatever the hook there is does with them.
pub(crate) fn remember() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // A thread that is ending has no such variable any more.
            let _ = LAST.try_with(|last| last.replace(Some(describe(info))));
            before(info);
        }));
    });
}

/// The last one of this thread.
pub(crate) fn of_this_thread() -> Option<String> {
    LAST.try_with(|last| last.borrow().clone()).ok().flatten()
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let what =
        payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    let place = info.location().map(|place| format!(" at {place}")).unwrap_or_default();
    format!("{:?}{place}", what.unwrap_or("no message"))
}
