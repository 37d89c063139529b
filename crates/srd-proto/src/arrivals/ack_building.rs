//! An ACK is built: what has been accepted, which paths answered, and what the receiver has seen.

use super::Arrivals;
use srd_wire::{AckBox, Echo, Hold, Time};

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
        for echo in &self.echoes {
            ack.echoes.push(Echo {
                path: echo.path,
                tx_count: echo.tx_count,
                hold: Hold::from_nanos(now.since(echo.at)),
                psn: echo.psn,
                stamp: echo.stamp,
            });
        }
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
        }
        filled
    }
}
