//! State of `foxton top`: the last two snapshots, the page, the order, and the keys that change
//! them.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use foxton::{
    observe::WatchError,
    status::{PageStatus, QueueStatus, RequestStatus, Status},
};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::PAUSES;
use crate::tables::PageRates;

/// Throughputs kept for the curve.
const HISTORY: usize = 240;

/// Effect of a key on the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Draw again.
    Stay,
    /// Take a snapshot at once.
    Look,
    /// Stop until the user continues it, as other programs do.
    Suspend,
    /// Exit.
    Leave,
}

/// The order of waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Longest,
    Name,
    Label,
    Oldest,
}

impl Order {
    fn next(self) -> Order {
        match self {
            Order::Longest => Order::Name,
            Order::Name => Order::Label,
            Order::Label => Order::Oldest,
            Order::Oldest => Order::Longest,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Order::Longest => "longest first",
            Order::Name => "by name",
            Order::Label => "by label",
            Order::Oldest => "oldest transaction first",
        }
    }
}

/// Rates between the last two snapshots, each second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) commits: f64,
    pub(super) rollbacks: f64,
    pub(super) deadlocks: f64,
    pub(super) reruns: f64,
    pub(super) locks: f64,
    pub(super) waits: f64,
    pub(super) timeouts: f64,
    /// Seconds waited by all transactions together, each second.
    pub(super) waiting: f64,
    pub(super) pages: PageRates,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct State {
    pub(super) page: u8,
    pub(super) order: Order,
    pub(super) scroll: usize,
    pub(super) status: Option<Status>,
    pub(super) rates: Rates,
    pub(super) history: VecDeque<u64>,
    /// Why there is no new snapshot.
    pub(super) trouble: Option<String>,
    taken: Option<Instant>,
    paused: bool,
    every: Duration,
}

impl State {
    pub(super) fn new(page: u8, every: Duration) -> State {
        State {
            page,
            every,
            order: Order::Longest,
            scroll: 0,
            status: None,
            rates: Rates::default(),
            history: VecDeque::new(),
            trouble: None,
            taken: None,
            paused: false,
        }
    }

    pub(super) fn every(&self) -> Duration {
        self.every
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Takes in a snapshot.
    pub(super) fn see(&mut self, status: Status) {
        self.trouble = None;
        if let Some(before) = &self.status {
            // Another process, or the same database opened again, counts from zero.
            let continues = before.process == status.process && before.open <= status.open;
            let passed = status.open.saturating_sub(before.open).as_secs_f64();
            if !continues {
                self.history.clear();
            } else if passed > 0.0 {
                self.rates = rates(before, &status, passed);
                self.history.push_back(self.rates.commits as u64);
                if self.history.len() > HISTORY {
                    self.history.pop_front();
                }
            }
        }
        self.taken = Some(Instant::now());
        self.status = Some(status);
    }

    /// Records that there was no snapshot.
    pub(super) fn lose(&mut self, error: &WatchError) {
        self.trouble = Some(error.to_string());
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Verdict {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Verdict::Leave,
            KeyCode::Char('z') if control => return Verdict::Suspend,
            KeyCode::Char('q') | KeyCode::Esc => return Verdict::Leave,
            KeyCode::Char(' ' | 'p') => {
                self.paused = !self.paused;
                if !self.paused {
                    return Verdict::Look;
                }
            }
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char(digit @ '1'..='5') => self.turn_to(digit as u8 - b'0'),
            KeyCode::Tab | KeyCode::Right => self.turn_to(self.page % 5 + 1),
            KeyCode::BackTab | KeyCode::Left => self.turn_to((self.page + 3) % 5 + 1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::PageDown => self.scroll += 10,
            KeyCode::Home => self.scroll = 0,
            KeyCode::Char('+') => self.every = (self.every / 2).max(PAUSES.0),
            KeyCode::Char('-') => self.every = (self.every * 2).min(PAUSES.1),
            _ => {}
        }
        Verdict::Stay
    }

    fn turn_to(&mut self, page: u8) {
        (self.page, self.scroll) = (page, 0);
    }

    /// The waiters, in the chosen order.
    pub(super) fn waiters(&self) -> Vec<(&QueueStatus, &RequestStatus)> {
        let mut waiters = self
            .status
            .as_ref()
            .map(Status::waiters)
            .unwrap_or_default();
        match self.order {
            Order::Longest => {}
            Order::Name => waiters.sort_by(|a, b| a.0.name.cmp(&b.0.name)),
            Order::Label => waiters.sort_by(|a, b| a.1.label.cmp(&b.1.label)),
            Order::Oldest => waiters.sort_by_key(|(_, waiter)| std::cmp::Reverse(waiter.age)),
        }
        waiters
    }
}

fn rates(before: &Status, after: &Status, passed: f64) -> Rates {
    let rate = |of: &dyn Fn(&Status) -> u64| of(after).saturating_sub(of(before)) as f64 / passed;
    let waited = after.locks.waited.saturating_sub(before.locks.waited);
    let page_rate =
        |of: &dyn Fn(&PageStatus) -> u64| rate(&|status| status.pages.as_ref().map_or(0, of));
    Rates {
        commits: rate(&Status::all_commits),
        rollbacks: rate(&|status| status.transactions.rollbacks),
        deadlocks: rate(&|status| status.transactions.deadlocks),
        reruns: rate(&|status| status.transactions.reruns),
        locks: rate(&|status| status.locks.acquisitions),
        waits: rate(&|status| status.locks.waits),
        timeouts: rate(&|status| status.locks.timeouts),
        waiting: waited.as_secs_f64() / passed,
        pages: PageRates {
            reads: page_rate(&|pages| pages.reads),
            writes: page_rate(&|pages| pages.writes),
            lookups: page_rate(&|pages| pages.lookups),
            waits: page_rate(&|pages| pages.page_waits),
        },
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A snapshot of a bank with two waiters, a second after `earlier`.
    fn status(open_seconds: u64, commits: u64) -> Status {
        let lookups = 50 * commits;
        let text = format!(
            r#"{{"process":4711,"database":"/tmp/play","lock_manager":"bucket over parking",
            "open_micros":{},
            "transactions":{{"commits":{commits},"rollbacks":3,"deadlocks":1}},
            "pages":{{"page_bytes":8192,"frames":1000,"free":100,"dirty":250,
                "reads":{commits},"writes":70,"lookups":{lookups},"page_waits":{commits},
                "waiting_for_pages":3,"waiting_for_latches":1,"waiting_for_cleaner":2}},
            "locks":{{"acquisitions":9000,"waits":40,"waited_micros":5000000,
                "half_within_micros":64,"most_within_micros":4096,"memory_bytes":1048576}},
            "queues":[{{"name":"accounts/7",
                "holders":[{{"owner":"1.1","label":"audit","mode":"S","age_micros":9000000}}],
                "waiters":[
                  {{"owner":"2.1","label":"transfer","mode":"X","age_micros":3000000,
                   "waited_micros":1500000,"behind":[{{"owner":"1.1","label":"audit",
                   "mode":"S","age_micros":9000000,"holds":true}}]}},
                  {{"owner":"3.1","label":"booking","mode":"S","age_micros":4000000,
                   "waited_micros":20000,"behind":[{{"owner":"2.1","label":"transfer",
                   "mode":"X","holds":false}}]}}]}},
              {{"name":"accounts",
                "holders":[{{"owner":"1.1","label":"audit","mode":"IS","age_micros":9000000}}]}}],
            "versions":{{"bytes":3145728,"limit":1073741824,"pruned":70,"active":1,
                "snapshots":[{{"lsn":5000,"age_micros":9000000,"label":"report",
                "bytes":3145728}}]}},
            "hot_names":[{{"name":"accounts/7","waits":40,"waited_micros":5000000}}],
            "tables":[{{"name":"accounts","waits":40,"waited_micros":5000000,"holds":38,
                "held_micros":1000000}}],
            "labels":[{{"name":"transfer","waits":39,"waited_micros":4900000}},
                {{"name":"","waits":1,"waited_micros":100}}],
            "deadlocks":[{{"at_micros":1,"cycle":[
                {{"owner":"2.1","label":"transfer","name":"accounts/1","mode":"X",
                  "behind_mode":"X","behind_holder":true,"victim":true}},
                {{"owner":"5.1","label":"","name":"accounts/2","mode":"X",
                  "behind_mode":"X","behind_holder":true}}]}}]}}"#,
            open_seconds * 1_000_000
        );
        serde_json::from_str(&text).expect("it is a picture")
    }

    /// Gives `state` two snapshots, a second and a thousand commits apart.
    pub(crate) fn busy(state: &mut State) {
        state.see(status(10, 500));
        state.see(status(11, 1_500));
    }

    fn press(state: &mut State, code: KeyCode) -> Verdict {
        state.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn rates_are_differences_a_second_and_start_again_with_another_process() {
        let mut state = State::new(1, Duration::from_secs(1));
        busy(&mut state);
        assert_eq!(state.rates.commits, 1_000.0);
        assert_eq!(state.history, [1_000]);
        state.see(status(1, 0));
        assert!(state.history.is_empty());
        state.see(status(3, 1_000));
        assert_eq!(state.rates.commits, 500.0);
    }

    #[test]
    fn keys_sort_pause_turn_pages_and_leave() {
        let mut state = State::new(1, Duration::from_secs(1));
        busy(&mut state);
        let first = |state: &State| state.waiters()[0].1.owner.clone();
        assert_eq!(first(&state), "2.1");
        press(&mut state, KeyCode::Char('s'));
        press(&mut state, KeyCode::Char('s'));
        assert_eq!(first(&state), "3.1", "by label");
        press(&mut state, KeyCode::Char(' '));
        assert!(state.is_paused());
        assert_eq!(press(&mut state, KeyCode::Char('p')), Verdict::Look);
        for page in [2, 3, 4, 5, 1] {
            press(&mut state, KeyCode::Tab);
            assert_eq!(state.page, page);
        }
        press(&mut state, KeyCode::BackTab);
        assert_eq!(state.page, 5);
        press(&mut state, KeyCode::Char('+'));
        assert_eq!(state.every(), Duration::from_millis(500));
        assert_eq!(press(&mut state, KeyCode::Char('q')), Verdict::Leave);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.press(control_c), Verdict::Leave);
    }
}
