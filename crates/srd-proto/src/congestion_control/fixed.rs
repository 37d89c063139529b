//! A constant window without pacing, for tests.

use super::{AckSample, CongestionController, SendLimits};
use crate::Config;
use srd_wire::{Nanos, Time};

/// See the module.
pub(super) struct Fixed {
    limits: SendLimits,
}

impl Fixed {
    pub(super) fn new(config: &Config) -> Fixed {
        let burst_bytes = config.burst_bytes as u64;
        Fixed {
            limits: SendLimits {
                window_bytes: config.fixed_window_bytes,
                rate: f64::INFINITY,
                burst_bytes,
                credit_bytes: burst_bytes,
                inflight_horizon: Nanos(u64::MAX),
            },
        }
    }
}

impl CongestionController for Fixed {
    fn on_ack(&mut self, _: &AckSample) {}

    fn on_loss(&mut self, _: Time) {}

    fn send_limits(&self) -> SendLimits {
        self.limits
    }
}
