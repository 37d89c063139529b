//! What the live view shows, and what keys do to it.

use super::rates::{Overview, Process};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::cmp::Reverse;

/// In which order processes stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// Those that move most first.
    #[default]
    Rate,
    /// Those that send most again first.
    Retransmissions,
    /// By number.
    Pid,
    /// By name.
    Program,
}

impl Order {
    fn next(self) -> Order {
        match self {
            Order::Rate => Order::Retransmissions,
            Order::Retransmissions => Order::Pid,
            Order::Pid => Order::Program,
            Order::Program => Order::Rate,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Order::Rate => "rate",
            Order::Retransmissions => "retransmissions",
            Order::Pid => "pid",
            Order::Program => "program",
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct View {
    overview: Overview,
    order: Order,
    is_frozen: bool,
    has_looked: bool,
    /// The chosen process, by what stays the same.
    chosen: Option<(u32, String)>,
}

fn identity(process: &Process) -> (u32, String) {
    (process.pid, process.address.clone())
}

impl View {
    /// What was seen last. A frozen view stays as it is.
    pub fn update(&mut self, overview: Overview) {
        if self.is_frozen {
            return;
        }
        self.overview = overview;
        self.has_looked = true;
        self.sort();
        if self.chosen_row().is_none() {
            self.chosen = self.overview.processes.first().map(identity);
        }
    }

    /// A key was pressed. Whether it ends the view.
    pub fn press(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::Char('p') => self.is_frozen = !self.is_frozen,
            KeyCode::Char('s') => {
                self.order = self.order.next();
                self.sort();
            }
            _ => {}
        }
        false
    }

    fn choose(&mut self, step: isize) {
        let last = self.overview.processes.len().saturating_sub(1);
        let row = self.chosen_row().unwrap_or(0).saturating_add_signed(step).min(last);
        self.chosen = self.overview.processes.get(row).map(identity);
    }

    fn sort(&mut self) {
        let order = self.order;
        let rate = |process: &Process| {
            let rates = process.rates.unwrap_or_default();
            match order {
                Order::Rate => rates.tx_gbps + rates.rx_gbps + rates.shared_memory_gbps,
                Order::Retransmissions => rates.retransmissions_per_s,
                Order::Pid | Order::Program => 0.0,
            }
        };
        let name = |process: &Process| (order == Order::Program).then(|| process.program.clone());
        self.overview.processes.sort_by_cached_key(|process| {
            // Rates are not negative, so their bits are in their order.
            (Reverse(rate(process).to_bits()), name(process), identity(process))
        });
    }

    /// What is shown.
    pub fn overview(&self) -> &Overview {
        &self.overview
    }

    /// The row of the chosen process.
    pub fn chosen_row(&self) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        self.overview.processes.iter().position(|process| identity(process) == *chosen)
    }

    /// The chosen process.
    pub fn chosen(&self) -> Option<&Process> {
        self.chosen_row().map(|row| &self.overview.processes[row])
    }

    /// The order of processes.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Whether what is shown stays as it is.
    pub fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    /// Whether anything was looked for.
    pub fn has_looked(&self) -> bool {
        self.has_looked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::rates::Rates;

    fn overview(rates: &[(u32, f64)]) -> Overview {
        let process = |&(pid, tx_gbps): &(u32, f64)| Process {
            pid,
            program: format!("program{}", 100 - pid),
            rates: Some(Rates { tx_gbps, retransmissions_per_s: f64::from(pid), ..Rates::default() }),
            ..Process::default()
        };
        Overview { processes: rates.iter().map(process).collect(), silent: Vec::new() }
    }

    fn press(view: &mut View, key: char) -> bool {
        view.press(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE))
    }

    fn pids(view: &View) -> Vec<u32> {
        view.overview().processes.iter().map(|process| process.pid).collect()
    }

    #[test]
    fn the_chosen_process_stays_chosen_wherever_it_moves() {
        let mut view = View::default();
        view.update(overview(&[(1, 3.0), (2, 2.0), (3, 1.0)]));
        assert_eq!((pids(&view), view.chosen_row()), (vec![1, 2, 3], Some(0)));
        press(&mut view, 'j');
        assert_eq!(view.chosen().unwrap().pid, 2);
        view.update(overview(&[(1, 3.0), (2, 0.0), (3, 1.0)]));
        assert_eq!((view.chosen_row(), view.chosen().unwrap().pid), (Some(2), 2));
        press(&mut view, 'j');
        assert_eq!(view.chosen_row(), Some(2), "the last");
        press(&mut view, 'k');
        assert_eq!(view.chosen().unwrap().pid, 3);
        view.update(overview(&[(1, 3.0)]));
        assert_eq!(view.chosen().unwrap().pid, 1, "it has gone");
        view.update(overview(&[]));
        press(&mut view, 'k');
        assert!(view.chosen().is_none());
    }

    #[test]
    fn s_goes_through_the_orders() {
        let mut view = View::default();
        view.update(overview(&[(1, 2.0), (2, 0.5), (3, 1.0)]));
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push((view.order().name(), pids(&view)));
            press(&mut view, 's');
        }
        let wanted = [
            ("rate", vec![1, 3, 2]),
            ("retransmissions", vec![3, 2, 1]),
            ("pid", vec![1, 2, 3]),
            ("program", vec![3, 2, 1]),
        ];
        assert_eq!(seen, wanted);
        assert_eq!(view.order(), Order::Rate);
    }

    #[test]
    fn a_frozen_view_stays_and_q_ends() {
        let mut view = View::default();
        view.update(overview(&[(1, 1.0)]));
        press(&mut view, 'p');
        view.update(overview(&[(2, 1.0)]));
        assert_eq!(pids(&view), [1]);
        press(&mut view, 'p');
        view.update(overview(&[(2, 1.0)]));
        assert_eq!(pids(&view), [2]);
        assert!(!press(&mut view, 'c') && press(&mut view, 'q'));
        assert!(view.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }
}
