//! Who is told if the device fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What programs look at or sleep on.
pub(crate) trait Bereaved: Send + Sync {
    /// The device has failed: whoever looks must see it, and whoever sleeps must look.
    fn device_failed(&self);
}

/// Held while objects are told, and thus referred to.
static TELLING: Mutex<()> = Mutex::new(());

/// Whether something that the program has bound refers to an object. That it is being told of a failure does not count.
pub(crate) fn is_bound<T>(object: &Arc<T>) -> bool {
    let _nobody_tells = TELLING.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::strong_count(object) > 1
}

/// See the module.
#[derive(Default)]
pub(crate) struct List {
    objects: Mutex<Vec<Weak<dyn Bereaved>>>,
    told: AtomicBool,
}

impl List {
    /// From now on `object` is told.
    pub fn enter<T: Bereaved + 'static>(&self, object: &Arc<T>) {
        let mut bereaved = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        bereaved.retain(|other| {
            other.strong_count() > 0 && !std::ptr::addr_eq(other.as_ptr(), Arc::as_ptr(object))
        });
        bereaved.push(Arc::downgrade(object) as Weak<dyn Bereaved>);
    }

    /// Tells all, the first time.
    #[cold]
    pub fn tell(&self) {
        if self.told.swap(true, Ordering::SeqCst) {
            return;
        }
        let bereaved = self.objects.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let _telling = TELLING.lock().unwrap_or_else(PoisonError::into_inner);
        bereaved.iter().filter_map(Weak::upgrade).for_each(|object| object.device_failed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    struct Told;

    impl Bereaved for Told {
        fn device_failed(&self) {}
    }

    /// Says that it has been told, and goes on when the other has looked, or has had the time to.
    struct Slow(Mutex<(mpsc::Sender<()>, mpsc::Receiver<()>)>);

    impl Bereaved for Slow {
        fn device_failed(&self) {
            let (told, looked) = &*self.0.lock().unwrap();
            told.send(()).unwrap();
            let _ = looked.recv_timeout(Duration::from_millis(300));
        }
    }

    #[test]
    fn what_is_being_told_of_a_failure_is_not_bound() {
        let list = List::default();
        let ((tell, told), (look, looked)) = (mpsc::channel(), mpsc::channel());
        let (slow, object) = (Arc::new(Slow(Mutex::new((tell, looked)))), Arc::new(Told));
        list.enter(&slow);
        list.enter(&object);
        std::thread::scope(|scope| {
            scope.spawn(|| list.tell());
            told.recv().unwrap();
            let bound = is_bound(&object) || is_bound(&slow);
            let _ = look.send(()); // the other may be tired of waiting
            assert!(!bound);
        });
        let bound = object.clone();
        assert!(is_bound(&bound));
    }
}
