//! Queue pairs: their numbers, their states, and what each change of state needs.

use crate::api::*;
use crate::completion_counter::{AttachedCounters, CompletionCounter, Counted};
use crate::receive_queue::ReceiveQueue;
use crate::send_queue::{RnrRetries, SendQueue};
use srd_proto::Stranger;
use srd_wire::{Qkey, Qpn};
use std::sync::Arc;

/// One queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub qpn: Qpn,
    /// Index of the receive port that its QPN belongs to.
    pub port: u8,
    pub init: QpInit,
    pub state: QpState,
    pub qkey: Qkey,
    pub sq_psn: u32,
    pub rnr_retry: u8,
    /// See [`crate::Device::trust_newcomers`].
    pub trusts_newcomers: bool,
    /// See [`crate::Device::set_well_known`].
    pub well_known: bool,
    /// See [`crate::Device::tell_begun`].
    pub tells_begun: u32,
    pub sq: SendQueue,
    pub rq: ReceiveQueue,
    pub counters: QpCounters,
    /// Those of the program.
    pub attached: AttachedCounters,
}

impl QueuePair {
    pub fn new(qpn: Qpn, port: u8, init: QpInit, device: &DeviceConfig) -> QueuePair {
        QueuePair {
            qpn,
            port,
            init,
            state: QpState::Reset,
            qkey: Qkey(0),
            sq_psn: 0,
            rnr_retry: default_rnr_retry(device),
            trusts_newcomers: true,
            well_known: false,
            tells_begun: u32::MAX,
            sq: SendQueue::new(),
            rq: ReceiveQueue::new(),
            counters: QpCounters::default(),
            attached: AttachedCounters::default(),
        }
    }

    /// Whether messages of peers are let in.
    #[inline]
    pub fn receives(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    /// Whether a message may take a buffer that has to wait for the rest. Where everybody knows the queue key, half of them are
    /// for the peers that the program has named, and a quarter for strangers who have shown where they are.
    #[inline]
    pub fn has_buffer_for(&self, rest_from: Option<Stranger>) -> bool {
        let Some(stranger) = rest_from.filter(|_| self.well_known) else { return true };
        let (lent, to_unproven) = self.rq.lent();
        lent < self.init.rq_depth / 2
            && (stranger == Stranger::Proven || to_unproven < self.init.rq_depth / 4)
    }

    /// libefa `efa_post_send_validate`.
    #[inline]
    pub fn check_can_send(&self) -> Result<(), DeviceError> {
        match self.state {
            QpState::Rts | QpState::Sqd => Ok(()),
            _ => Err(DeviceError::Invalid("queue pair: sends may be posted in RTS and SQD only")),
        }
    }

    /// libefa `efa_post_recv_validate`.
    #[inline]
    pub fn check_can_post_receive(&self) -> Result<(), DeviceError> {
        match self.state {
            QpState::Reset | QpState::Err => Err(DeviceError::Invalid(
                "queue pair: receives may be posted from INIT on, not in RESET or ERR",
            )),
            _ => Ok(()),
        }
    }

    /// ibv_qp_attach_comp_cntr(3): "The QP must be in IBV_QPS_RESET or IBV_QPS_INIT state when attaching".
    pub fn attach(
        &mut self,
        what: &[Counted],
        counter: &Arc<dyn CompletionCounter>,
    ) -> Result<(), DeviceError> {
        match self.state {
            QpState::Reset | QpState::Init => self.attached.attach(what, counter),
            _ => Err(DeviceError::Invalid("queue pair: counters are attached in RESET and INIT only")),
        }
    }

    /// Checks a change and applies it. Returns the state before; what follows from the new one is the caller's work.
    pub fn modify(&mut self, change: &QpModify, device: &DeviceConfig) -> Result<QpState, DeviceError> {
        let from = self.state;
        if change.current_state.is_some_and(|state| state != from) {
            return Err(DeviceError::Invalid("current_state: the queue pair is in another state"));
        }
        let to = change.state.unwrap_or(from);
        check_attributes(self.init.kind, from, to, change)?;
        // efa_modify_qp_validate: there is one port and one partition key.
        if change.port.is_some_and(|port| port != 1) {
            return Err(DeviceError::Unsupported("port: 1 is the only one"));
        }
        if change.pkey_index.is_some_and(|index| index != 0) {
            return Err(DeviceError::Unsupported("pkey_index: 0 is the only one"));
        }
        if let Some(retries) = change.rnr_retry {
            if !device.rnr_retry {
                return Err(DeviceError::Unsupported("rnr_retry: this device does not offer it"));
            }
            if retries > RnrRetries::FOR_EVER {
                return Err(DeviceError::Invalid("rnr_retry: 0 to 6, or 7 for ever"));
            }
            self.rnr_retry = retries;
        }
        self.qkey = change.qkey.unwrap_or(self.qkey);
        self.sq_psn = change.sq_psn.unwrap_or(self.sq_psn);
        self.state = to;
        if to == QpState::Reset {
            self.qkey = Qkey(0);
            self.sq_psn = 0;
            self.rnr_retry = default_rnr_retry(device);
        }
        Ok(from)
    }
}

/// Where retries can be set, they are endless unless something else is said (libfabric: 7 is the SRD default); where
/// they cannot, there are none (SRD.txt, section 3.3.1: "Requester does not perform any retries").
fn default_rnr_retry(device: &DeviceConfig) -> u8 {
    if device.rnr_retry { RnrRetries::FOR_EVER } else { 0 }
}

/// A set of attributes of [`QpModify`].
type Attributes = u8;
const NOTHING: Attributes = 0;
const PKEY: Attributes = 1 << 0;
const PORT: Attributes = 1 << 1;
const QKEY: Attributes = 1 << 2;
const PSN: Attributes = 1 << 3;
const RNR: Attributes = 1 << 4;
const CURRENT: Attributes = 1 << 5;

/// Attributes that a transition requires and those it permits beyond, or `None` if there is no such transition.
/// From the driver's `srd_qp_state_table`; for UD, the core's `ib_modify_qp_is_ok`, which knows no RNR retry.
fn transition(kind: QpKind, from: QpState, to: QpState) -> Option<(Attributes, Attributes)> {
    use QpState::*;
    let rnr = if kind == QpKind::Srd { RNR } else { NOTHING };
    Some(match (from, to) {
        (_, Reset) => (NOTHING, NOTHING),
        (Reset, Init) => (PKEY | PORT | QKEY, NOTHING),
        (Reset, _) => return None,
        (_, Err) => (NOTHING, NOTHING),
        (Init, Init) => (NOTHING, PKEY | PORT | QKEY),
        (Init, Rtr) => (NOTHING, PKEY | QKEY),
        (Rtr, Rts) => (PSN, CURRENT | QKEY | rnr),
        (Rts, Rts) => (NOTHING, CURRENT | QKEY),
        (Rts, Sqd) => (NOTHING, NOTHING),
        (Sqd, Rts) => (NOTHING, CURRENT | QKEY),
        (Sqd, Sqd) => (NOTHING, PKEY | QKEY),
        (Sqe, Rts) => (NOTHING, CURRENT | QKEY),
        _ => return None,
    })
}

fn check_attributes(kind: QpKind, from: QpState, to: QpState, change: &QpModify) -> Result<(), DeviceError> {
    let Some((required, optional)) = transition(kind, from, to) else {
        return Err(DeviceError::Invalid(
            "state: RESET, INIT, RTR, RTS in turn; RTS to SQD and back; any to RESET; \
                                         any but RESET to ERR",
        ));
    };
    let given = given(change);
    if required & !given & PSN != 0 {
        return Err(DeviceError::Invalid("sq_psn: RTR to RTS needs it"));
    }
    if required & !given != 0 {
        return Err(DeviceError::Invalid("qkey, pkey_index, port: RESET to INIT needs all three"));
    }
    if given & !(required | optional) != 0 {
        return Err(DeviceError::Invalid("an attribute was given that this transition does not take"));
    }
    Ok(())
}

fn given(change: &QpModify) -> Attributes {
    let bit = |present: bool, attribute: Attributes| if present { attribute } else { NOTHING };
    bit(change.pkey_index.is_some(), PKEY)
        | bit(change.port.is_some(), PORT)
        | bit(change.qkey.is_some(), QKEY)
        | bit(change.sq_psn.is_some(), PSN)
        | bit(change.rnr_retry.is_some(), RNR)
        | bit(change.current_state.is_some(), CURRENT)
}

/// Which QPNs are taken, and by which queue pair. QPN = slot * 128 + i, where the slot is that of a receive port; so
/// whoever knows a QPN knows the port, on any host, and a QPN is unique on its host as long as the port is.
#[derive(Debug)]
pub(crate) struct QpNumbers {
    blocks: Vec<Block>,
    /// Index into `blocks` by slot.
    block_of_slot: Box<[u8; SLOTS]>,
    /// Where to look for the next free number, so that one just given back is used again last.
    cursor: u32,
}

#[derive(Debug)]
struct Block {
    slot: u16,
    queue_pairs: [u32; QPS_PER_PORT as usize],
}

/// 16 bits of QPN, 128 to a port.
pub(crate) const SLOTS: usize = (1 << 16) / QPS_PER_PORT as usize;
const NO_BLOCK: u8 = u8::MAX;
const FREE: u32 = u32::MAX;

/// 0 and 1 are the management queue pairs of InfiniBand, 0xFFFF is "none".
fn is_reserved(qpn: u16) -> bool {
    matches!(qpn, 0 | 1 | 0xFFFF)
}

impl QpNumbers {
    pub fn new() -> QpNumbers {
        QpNumbers { blocks: Vec::new(), block_of_slot: Box::new([NO_BLOCK; SLOTS]), cursor: 0 }
    }

    /// Adds the numbers of a receive port.
    pub fn add_slot(&mut self, slot: u16) -> Result<(), DeviceError> {
        if self.block_of_slot[slot as usize] != NO_BLOCK {
            return Err(DeviceError::Invalid("port: the device receives on it already"));
        }
        if self.blocks.len() == NO_BLOCK as usize {
            return Err(DeviceError::Full("receive ports: 255 are the most"));
        }
        self.block_of_slot[slot as usize] = self.blocks.len() as u8;
        self.blocks.reserve_exact(1); // rarely more, and they are large
        self.blocks.push(Block { slot, queue_pairs: [FREE; QPS_PER_PORT as usize] });
        Ok(())
    }

    /// Slots of the receive ports, in the order of adding.
    pub fn slots(&self) -> impl Iterator<Item = u16> {
        self.blocks.iter().map(|block| block.slot)
    }

    /// The receive port's index by its slot.
    #[inline]
    pub fn port_of_slot(&self, slot: u16) -> Option<u8> {
        self.block_of_slot.get(slot as usize).copied().filter(|&block| block != NO_BLOCK)
    }

    /// A free number and the index of its port.
    pub fn free_number(&self) -> Option<(Qpn, u8)> {
        let total = self.blocks.len() as u32 * QPS_PER_PORT as u32;
        (0..total).map(|step| (self.cursor + step) % total).find_map(|at| {
            let (block, i) = (at / QPS_PER_PORT as u32, at % QPS_PER_PORT as u32);
            let qpn = self.blocks[block as usize].slot * QPS_PER_PORT + i as u16;
            let free = self.blocks[block as usize].queue_pairs[i as usize] == FREE && !is_reserved(qpn);
            free.then_some((Qpn(qpn), block as u8))
        })
    }

    /// Whether a queue pair may be given this very number, and the index of its port.
    pub fn check_free(&self, qpn: Qpn) -> Result<u8, DeviceError> {
        if is_reserved(qpn.0) {
            return Err(DeviceError::Invalid("queue pair number: 0, 1 and 65535 are reserved"));
        }
        let port = self.port_of_slot(qpn.0 / QPS_PER_PORT).ok_or(DeviceError::Full("port"))?;
        match self.find(qpn) {
            Some(_) => Err(DeviceError::Busy("queue pair number: another queue pair has it")),
            None => Ok(port),
        }
    }

    /// Gives a free number to the queue pair in slot `index` of the device's table.
    pub fn take(&mut self, qpn: Qpn, index: u32) {
        let block = self.block_of_slot[(qpn.0 / QPS_PER_PORT) as usize];
        let i = qpn.0 % QPS_PER_PORT;
        let entry = &mut self.blocks[block as usize].queue_pairs[i as usize];
        assert_eq!(*entry, FREE, "a number is given once");
        *entry = index;
        self.cursor = block as u32 * QPS_PER_PORT as u32 + i as u32 + 1;
    }

    pub fn give_back(&mut self, qpn: Qpn) {
        let block = self.block_of_slot[(qpn.0 / QPS_PER_PORT) as usize];
        self.blocks[block as usize].queue_pairs[(qpn.0 % QPS_PER_PORT) as usize] = FREE;
    }

    /// The queue pair's slot in the device's table.
    #[inline]
    pub fn find(&self, qpn: Qpn) -> Option<u32> {
        let block = self.port_of_slot(qpn.0 / QPS_PER_PORT)?;
        let index = self.blocks[block as usize].queue_pairs[(qpn.0 % QPS_PER_PORT) as usize];
        (index != FREE).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use QpState::*;

    const STATES: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];

    fn queue_pair(kind: QpKind, state: QpState, device: &DeviceConfig) -> QueuePair {
        let init = QpInit {
            kind,
            pd: PdId(0),
            send_cq: CqId(0),
            recv_cq: CqId(0),
            sq_depth: 1,
            rq_depth: 1,
            send_sge: 1,
            recv_sge: 1,
            inline: 0,
            rdma_read: false,
            rdma_write: false,
            unsolicited_write_recv: false,
        };
        QueuePair { state, ..QueuePair::new(Qpn(2), 0, init, device) }
    }

    fn to(state: QpState) -> QpModify {
        QpModify { state: Some(state), ..QpModify::default() }
    }

    #[test]
    fn the_state_machine_is_that_of_ud() {
        let device = DeviceConfig::default();
        let full = QpModify {
            qkey: Some(Qkey(7)),
            pkey_index: Some(0),
            port: Some(1),
            state: Some(Init),
            ..QpModify::default()
        };
        for kind in [QpKind::Srd, QpKind::Ud] {
            for from in STATES {
                for next in STATES {
                    let change = match (from, next) {
                        (Reset, Init) => full,
                        (Rtr, Rts) => QpModify { sq_psn: Some(1), ..to(Rts) },
                        _ => to(next),
                    };
                    let allowed = match (from, next) {
                        (_, Reset) => true,
                        (_, Err) => from != Reset,
                        (Reset, Init) | (Init, Init) | (Init, Rtr) | (Rtr, Rts) | (Rts, Rts) => true,
                        (Rts, Sqd) | (Sqd, Rts) | (Sqd, Sqd) | (Sqe, Rts) => true,
                        _ => false,
                    };
                    let mut qp = queue_pair(kind, from, &device);
                    assert_eq!(qp.modify(&change, &device).is_ok(), allowed, "{kind:?} {from:?} to {next:?}");
                    assert_eq!(qp.state, if allowed { next } else { from });
                }
            }
        }
    }

    #[test]
    fn reset_to_init_needs_qkey_pkey_index_and_port() {
        let device = DeviceConfig::default();
        let full = QpModify { qkey: Some(Qkey(7)), pkey_index: Some(0), port: Some(1), ..to(Init) };
        for missing in [
            QpModify { qkey: None, ..full },
            QpModify { pkey_index: None, ..full },
            QpModify { port: None, ..full },
        ] {
            let mut qp = queue_pair(QpKind::Srd, Reset, &device);
            assert!(matches!(qp.modify(&missing, &device), Result::Err(DeviceError::Invalid(_))));
        }
        let mut qp = queue_pair(QpKind::Srd, Reset, &device);
        qp.modify(&full, &device).unwrap();
        assert_eq!((qp.state, qp.qkey), (Init, Qkey(7)));
    }

    #[test]
    fn another_port_or_partition_key_is_not_supported() {
        let device = DeviceConfig::default();
        let full = QpModify { qkey: Some(Qkey(7)), pkey_index: Some(0), port: Some(1), ..to(Init) };
        for wrong in [QpModify { port: Some(2), ..full }, QpModify { pkey_index: Some(1), ..full }] {
            let mut qp = queue_pair(QpKind::Srd, Reset, &device);
            assert!(matches!(qp.modify(&wrong, &device), Result::Err(DeviceError::Unsupported(_))));
        }
    }

    #[test]
    fn rtr_to_rts_needs_a_psn_and_takes_an_rnr_retry_on_srd_only() {
        let device = DeviceConfig::default();
        let mut qp = queue_pair(QpKind::Srd, Rtr, &device);
        assert!(qp.modify(&to(Rts), &device).is_err());
        let rts = QpModify { sq_psn: Some(5), rnr_retry: Some(3), ..to(Rts) };
        assert!(qp.modify(&QpModify { rnr_retry: Some(8), ..rts }, &device).is_err());
        qp.modify(&rts, &device).unwrap();
        assert_eq!((qp.sq_psn, qp.rnr_retry), (5, 3));

        let mut ud = queue_pair(QpKind::Ud, Rtr, &device);
        assert!(matches!(ud.modify(&rts, &device), Result::Err(DeviceError::Invalid(_))));

        let plain = DeviceConfig { rnr_retry: false, ..DeviceConfig::default() };
        let mut qp = queue_pair(QpKind::Srd, Rtr, &plain);
        assert_eq!(qp.rnr_retry, 0);
        assert!(matches!(qp.modify(&rts, &plain), Result::Err(DeviceError::Unsupported(_))));
    }

    #[test]
    fn a_wrong_current_state_is_refused() {
        let device = DeviceConfig::default();
        let mut qp = queue_pair(QpKind::Srd, Rts, &device);
        let wrong = QpModify { current_state: Some(Sqd), ..to(Rts) };
        assert!(matches!(qp.modify(&wrong, &device), Result::Err(DeviceError::Invalid(_))));
    }

    #[test]
    fn numbers_are_unique_and_of_their_ports_and_used_again_late() {
        let mut numbers = QpNumbers::new();
        assert_eq!(numbers.free_number(), None);
        for slot in [0, 511, 7] {
            numbers.add_slot(slot).unwrap();
        }
        assert!(numbers.add_slot(7).is_err());
        let mut seen = std::collections::HashSet::new();
        while let Some((qpn, port)) = numbers.free_number() {
            assert!(!is_reserved(qpn.0) && seen.insert(qpn));
            assert_eq!([0, 511, 7][port as usize], qpn.0 / 128);
            numbers.take(qpn, seen.len() as u32);
            assert_eq!(numbers.find(qpn), Some(seen.len() as u32));
        }
        assert_eq!(seen.len(), 3 * 128 - 3);
        let (a, b) = (Qpn(7 * 128), Qpn(5));
        numbers.give_back(a);
        numbers.give_back(b);
        let (first, _) = numbers.free_number().unwrap();
        numbers.take(first, 1);
        numbers.give_back(first);
        assert_ne!(numbers.free_number().unwrap().0, first);
        assert_eq!((numbers.find(b), numbers.find(Qpn(2000))), (None, None));
    }

    #[test]
    fn a_number_of_a_port_that_is_there_can_be_chosen_once() {
        let mut numbers = QpNumbers::new();
        numbers.add_slot(7).unwrap();
        numbers.add_slot(0).unwrap();
        let chosen = Qpn(7 * 128 + 5);
        assert_eq!(numbers.check_free(chosen), Ok(0));
        numbers.take(chosen, 1);
        assert!(matches!(numbers.check_free(chosen), Result::Err(DeviceError::Busy(_))));
        numbers.give_back(chosen);
        assert_eq!(numbers.check_free(chosen), Ok(0));
        assert!(matches!(numbers.check_free(Qpn(1)), Result::Err(DeviceError::Invalid(_))));
        assert_eq!(numbers.check_free(Qpn(8 * 128)), Result::Err(DeviceError::Full("port")));
    }
}
