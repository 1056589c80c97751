//! `foxton top`: a running database, live on the terminal.
//!
//! Each tick requests a snapshot and shows the differences to the one before. The terminal is
//! restored however the program ends, also by a panic or a signal. If the process ends, the view
//! waits until the database is opened again.

/// The data shown, and the keys that change them.
mod state;

/// The frame.
mod view;

/// The terminal.
mod screen;

use std::{
    io::{self, IsTerminal},
    path::Path,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use foxton::{
    observe::{WatchError, Watcher},
    status::Status,
};
use ratatui::{
    Terminal,
    backend::TestBackend,
    buffer::Buffer,
    crossterm::event::{self, Event, KeyEventKind},
};
use screen::Screen;
use signal_hook::{consts::SIGTSTP, low_level};
use state::{State, Verdict};

use crate::{arguments::Top, output::show};

/// Time between the two snapshots of a single frame.
const MOMENT: Duration = Duration::from_millis(500);
/// The shortest and the longest time between two updates.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// Watches until the user quits; or shows one frame.
pub(crate) fn run(what: &Top) -> Result<ExitCode, String> {
    let mut eye = Eye::open(&what.directory).map_err(|error| error.to_string())?;
    let every = Duration::from_secs_f64(what.every).clamp(PAUSES.0, PAUSES.1);
    let mut state = State::new(what.page, every);
    if what.once {
        return once(&mut eye, &mut state, what.size);
    }
    if !io::stdout().is_terminal() {
        return Err("standard output is not a terminal; --once prints one frame".to_owned());
    }
    let mut screen = Screen::open()?;
    let ended = watch(&mut screen, &mut eye, &mut state);
    drop(screen);
    ended.map_err(|error| format!("the terminal could not be used: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

fn once(eye: &mut Eye<'_>, state: &mut State, size: (u16, u16)) -> Result<ExitCode, String> {
    for pause in [MOMENT, Duration::ZERO] {
        let status = eye.look().map_err(|error| error.to_string())?;
        state.see(status);
        thread::sleep(pause);
    }
    show(&frame(state, size));
    Ok(ExitCode::SUCCESS)
}

fn watch(screen: &mut Screen, eye: &mut Eye<'_>, state: &mut State) -> io::Result<()> {
    let mut due = Instant::now();
    loop {
        if Instant::now() >= due {
            due = Instant::now() + state.every();
            if !state.is_paused() {
                match eye.look() {
                    Ok(status) => state.see(status),
                    Err(error) => state.lose(&error),
                }
            }
        }
        screen.draw(|frame| view::draw(frame, state))?;
        let pause = due.saturating_duration_since(Instant::now());
        if !event::poll(pause)? {
            continue;
        }
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => match state.press(key) {
                Verdict::Stay => {}
                Verdict::Look => due = Instant::now(),
                Verdict::Suspend => low_level::raise(SIGTSTP)?,
                Verdict::Leave => return Ok(()),
            },
            Event::Resize(..) => screen.clear()?,
            _ => {}
        }
    }
}

/// One frame as lines of text.
fn frame(state: &State, (columns, rows): (u16, u16)) -> String {
    let mut terminal = match Terminal::new(TestBackend::new(columns, rows)) {
        Ok(terminal) => terminal,
        Err(never) => match never {},
    };
    match terminal.draw(|frame| view::draw(frame, state)) {
        Ok(done) => text(done.buffer),
        Err(never) => match never {},
    }
}

fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for line in buffer.content.chunks(usize::from(buffer.area.width).max(1)) {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A connection that takes snapshots, and reconnects after the process has ended.
struct Eye<'p> {
    place: &'p Path,
    watcher: Option<Watcher>,
}

impl Eye<'_> {
    fn open(place: &Path) -> Result<Eye<'_>, WatchError> {
        let watcher = Some(Watcher::connect(place)?);
        Ok(Eye { place, watcher })
    }

    fn look(&mut self) -> Result<Status, WatchError> {
        let mut watcher = match self.watcher.take() {
            Some(watcher) => watcher,
            None => Watcher::connect(self.place)?,
        };
        let status = watcher.status()?;
        self.watcher = Some(watcher);
        Ok(status)
    }
}

#[cfg(test)]
mod tests {
    use super::{state::tests::busy, *};

    fn shown(page: u8, size: (u16, u16)) -> String {
        let mut state = State::new(page, Duration::from_secs(1));
        busy(&mut state);
        frame(&state, size)
    }

    #[test]
    fn the_first_page_has_throughput_waits_names_labels_and_keys_on_80_by_24() {
        let text = shown(1, (80, 24));
        assert_eq!(text.lines().count(), 24);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        for words in [
            "process 4711",
            "bucket over parking",
            "1,000",      // commits a second
            "transfer",   // a label
            "accounts/7", // a name
            "audit holds S",
            "1.5 s",
            "hot names",
            "labels",
            "1 deadlock",
            "pages: 90 % of 1,000 used, 25 % dirty, hits 98.0 %; 1,000 reads/s, 0 writes/s",
            "waiting: 3 for a page, 1 for a latch, 0 for space, 2 for the page cleaner",
            "versions: 3 MiB of 1 GiB kept, 70 freed, 0 snapshots ended, 0 waits",
            "snapshot report at 5000, 9 s old, keeps 3 MiB",
            "q quit",
        ] {
            assert!(text.contains(words), "no {words:?} in\n{text}");
        }
    }

    #[test]
    fn every_page_is_drawn_at_every_size_without_a_panic() {
        for page in 1..=5 {
            for size in [(20, 6), (40, 10), (80, 24), (200, 60)] {
                shown(page, size);
            }
        }
        for size in [(1, 1), (80, 2)] {
            shown(1, size);
        }
    }

    #[test]
    fn the_other_pages_have_holders_usage_and_deadlocks() {
        assert!(shown(2, (100, 24)).contains("waits, longest first"));
        assert!(shown(3, (100, 24)).contains("audit"));
        let usage = shown(4, (110, 24));
        assert!(
            usage.contains("mean hold") && usage.contains("accounts"),
            "{usage}"
        );
        let deadlocks = shown(5, (100, 24));
        assert!(deadlocks.contains("victim"), "{deadlocks}");
    }

    #[test]
    fn a_process_that_has_ended_is_reported() {
        let mut state = State::new(1, Duration::from_secs(1));
        busy(&mut state);
        state.lose(&WatchError::Gone {
            place: "/tmp/play".into(),
        });
        assert!(frame(&state, (80, 24)).contains("is gone"));
    }
}
