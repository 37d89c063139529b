//! An ACK is built: what has been accepted, which paths answered, and what the receiver has seen.

use super::{Arrivals, PendingEcho};
use srd_wire::{AckBox, Echo, Hold, MAX_ECHOES, Time};

impl Arrivals {
    /// The ACK as of now; the echoes are used up.
    pub(crate) fn take_ack(&mut self, now: Time, senders: u16) -> AckBox {
        let mut filled = AckBox::to_be_filled();
        let ack = &mut *filled;
        ack.cum = self.cum;
        ack.rcvd_bytes = self.rcvd_bytes;
        ack.rx_time = self.newest.stamp();
        ack.senders = senders;
        ack.ce_count = self.ce_count;
        ack.buffer_level = 0;
        let told = |echo: &PendingEcho| Echo {
            path: echo.path,
            tx_count: echo.tx_count,
            hold: Hold::from_nanos(now.since(echo.at)),
            psn: echo.psn,
            stamp: echo.stamp,
        };
        // Cut packets have half of the room at least, and the next ACK.
        let cuts = self.cuts.len().min((MAX_ECHOES - self.echoes.len()).max(MAX_ECHOES / 2));
        for echo in self.echoes.iter().skip(self.echoes.len().saturating_sub(MAX_ECHOES - cuts)) {
            ack.echoes.push(told(echo));
        }
        for cut in self.cuts.drain(..cuts) {
            ack.echoes.push(told(&cut));
        }
        ack.cuts = cuts as u8;
        let first = self.cum.plus(1);
        for word in 0..self.sack_words() as u32 {
            ack.sack.push(self.accepted.word_at(first.plus(64 * word)));
        }
        // The bitmap is circular: the last word may reach round to the cumulative PSN itself, which is not accepted.
        while ack.sack.last() == Some(&0) {
            ack.sack.pop();
        }
        if self.repeat_acks > 0 {
            self.repeat_acks -= 1;
            self.repeated = true;
        }
        if self.repeat_acks == 0 {
            self.echoes.clear();
            self.clear_due();
            if !self.cuts.is_empty() {
                self.ack_at = now;
            } else if cuts > 0 {
                self.cuts = Vec::new(); // they are rare: no memory is kept for the next
            }
        }
        filled
    }
}
