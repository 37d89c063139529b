//! The live view's loop: a thread looks at the processes, this one draws and reads keys. The terminal is put back however
//! it ends: by a key, a signal, an error or a panic.

use super::draw::draw;
use super::rates::{Overview, compare};
use super::sample::{self, Chosen};
use super::view::View;
use super::{HOW_TO_START, nobody};
use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::time::Duration;

/// How soon a signal ends the view, and how soon what is new is drawn.
const LOOK: Duration = Duration::from_millis(50);

/// Shows everything until it is told to end.
pub fn run(chosen: Chosen, interval: Duration) -> anyhow::Result<ExitCode> {
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, end.clone())?;
    }
    let missing = format!("{}; {HOW_TO_START}. Waiting for one...", nobody(&chosen));
    let (found, overviews) = mpsc::channel();
    std::thread::Builder::new().name("look".into()).spawn(move || look(&chosen, interval, &found))?;
    // This also sees to it that a panic puts the terminal back before it says what happened.
    let mut terminal =
        ratatui::try_init().context("cannot draw on this terminal; --once prints tables as text")?;
    let result = show(&mut terminal, &overviews, &end, &missing);
    ratatui::restore();
    result.map(|()| ExitCode::SUCCESS)
}

/// Looks at the processes until nobody wants to know any more.
fn look(chosen: &Chosen, interval: Duration, found: &Sender<Overview>) {
    let mut before = sample::Sample::default();
    loop {
        let now = sample::take(chosen);
        if found.send(compare(&before, &now)).is_err() {
            return;
        }
        before = now;
        std::thread::sleep(interval);
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    overviews: &Receiver<Overview>,
    end: &AtomicBool,
    missing: &str,
) -> anyhow::Result<()> {
    let mut view = View::default();
    let mut is_new = true;
    while !end.load(Ordering::Relaxed) {
        loop {
            match overviews.try_recv() {
                Ok(overview) => {
                    view.update(overview);
                    is_new = true;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => anyhow::bail!("the thread that looks has ended"),
            }
        }
        if std::mem::take(&mut is_new) {
            terminal.draw(|frame| draw(frame, &view, missing))?;
        }
        if event::poll(LOOK)? {
            is_new = true;
            if let Event::Key(key) = event::read()?
                && view.press(key)
            {
                return Ok(());
            }
        }
    }
    Ok(())
}
