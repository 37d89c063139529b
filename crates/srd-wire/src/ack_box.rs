//! Where a packet keeps its ACK: on the heap, so that the many packets without one are cheap to move, and out of a
//! per-thread store, so that nothing is allocated once traffic flows.

use crate::Ack;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Most boxes that a thread keeps.
const KEPT: usize = 256;

thread_local! {
    #[allow(clippy::vec_box)] // the boxes are what is kept
    static STORE: RefCell<Vec<Box<Ack>>> = const { RefCell::new(Vec::new()) };
}

/// An [`Ack`] on the heap.
#[derive(PartialEq, Eq)]
pub struct AckBox(Option<Box<Ack>>);

impl AckBox {
    /// One without echoes and bitmap, whose other fields are to be set: an [`Ack`] is too large to be made elsewhere and moved here.
    #[inline]
    pub fn to_be_filled() -> AckBox {
        let take = |store: &RefCell<Vec<_>>| {
            let mut store = store.borrow_mut();
            if store.capacity() == 0 {
                store.extend((0..KEPT).map(|_| Box::<Ack>::default())); // all at once: nothing later
            }
            store.pop()
        };
        let mut place = STORE.try_with(take).ok().flatten().unwrap_or_default();
        place.echoes.clear();
        place.sack.clear();
        place.cuts = 0;
        AckBox(Some(place))
    }
}

impl From<Ack> for AckBox {
    fn from(ack: Ack) -> AckBox {
        let mut place = AckBox::to_be_filled();
        *place = ack;
        place
    }
}

impl Drop for AckBox {
    fn drop(&mut self) {
        if let Some(place) = self.0.take() {
            // While a thread ends, its store may be gone: then the box is simply freed.
            let _ = STORE.try_with(|store| {
                let mut store = store.borrow_mut();
                if store.len() < store.capacity() {
                    store.push(place);
                }
            });
        }
    }
}

impl Deref for AckBox {
    type Target = Ack;
    fn deref(&self) -> &Ack {
        self.0.as_deref().expect("emptied by drop only")
    }
}

impl DerefMut for AckBox {
    fn deref_mut(&mut self) -> &mut Ack {
        self.0.as_deref_mut().expect("emptied by drop only")
    }
}

impl Clone for AckBox {
    fn clone(&self) -> AckBox {
        AckBox::from(Ack::clone(self))
    }
}

impl std::fmt::Debug for AckBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ack::fmt(self, f)
    }
}
