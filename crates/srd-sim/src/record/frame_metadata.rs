//! What frames of a recorded run carry: what they carry anyway, and what only their sender knows of them.

use crate::apps::Place;
use crate::hosts::AnyHost;
use crate::net::{Content, ETHERNET_HEADER};
use srd_baselines::frame::DataPacket;
use srd_baselines::transport::Transport;
use srd_baselines::wire::Headers;

/// What frames of any transport carry.
pub type AnyContent = <AnyHost as Transport>::Content;

/// See the module.
#[derive(Clone, Debug)]
pub struct FrameMetadata {
    /// The process that sent it, as frames name it.
    pub from: Place,
    /// Source and destination port.
    pub ports: (u16, u16),
    /// Bytes of the IP datagram.
    pub bytes: u32,
    /// How often its data had been sent before, as far as somebody counts.
    pub tx: u8,
    /// Headers of a baseline's packet, if somebody captures.
    pub headers: Option<Headers>,
    /// What it is.
    pub content: AnyContent,
}

impl Content for FrameMetadata {
    fn trim(&mut self) -> Option<u32> {
        let left = self.content.trim()?;
        self.bytes = left - ETHERNET_HEADER;
        Some(left)
    }

    fn connection(&self) -> Option<u32> {
        self.content.connection()
    }

    fn data(&self) -> Option<DataPacket> {
        self.content.data()
    }

    fn acknowledges(&self) -> Option<u32> {
        self.content.acknowledges()
    }

    fn covers(&self, psn: u32) -> bool {
        self.content.covers(psn)
    }
}
