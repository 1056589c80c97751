//! Cases on a device that syncs only on request: answers must hold after a power cut.
//!
//! Commits release their locks when they are in the log, and are answered when they are durable. In
//! between, other transactions may have read what they wrote. Here a session of the case is the
//! device: its step `sync` makes its bytes durable. Each time a commit is answered, the power is
//! cut in a copy of the device. The rows found there must be
//!
//! * the rows after some number of the commits, in their order, and no others;
//! * after enough of them that the transaction's own writes are there; and
//! * after enough of them that its reads could be made.
//!
//! The flusher decides which of the waiting commits one sync answers; the verdict holds for all of
//! them.
//!
//! With durability *buffered* the process ends instead of the power being cut: the device is
//! stopped before it writes, and keeps the bytes that it has.

use super::alone::runs;
use super::outcome::Rows;
use super::play::{Session, Stage, rows};
use super::script::{Case, Step};
use foxton::{Database, Durability, Isolation, Options};
use foxton_log::device::{disk::Damage, fault::FaultDevice};
use foxton_sync::failpoint::{Failpoint, FailpointStop};
use std::{sync::Arc, thread, time::Duration};

/// How commits were answered in a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Acknowledged {
    /// Before the device had synced anything of the case.
    pub at_once: u64,
    /// Commits that had written nothing and had to wait for a sync.
    pub readers_waited: u64,
}

/// Runs `case` in this order on a new device, with a power cut at each answer, or the end of the
/// process if `options` say *buffered*.
///
/// # Errors
///
/// A wrong state after a cut, or an error of the database.
pub fn play_over_power_cuts(
    case: &Case,
    order: &[usize],
    mut options: Options,
) -> Result<Acknowledged, String> {
    options.checkpoint_log_bytes = u64::MAX;
    options.sync_interval = Duration::from_hours(1);
    let (point, damage) = match options.durability {
        Durability::Buffered => (&foxton_log::failpoint::WRITE, Damage::KeepAll),
        _ => (&foxton_log::failpoint::SYNC, Damage::DropAll),
    };
    let told = |error: foxton::Error| error.to_string();
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), options.clone()).map_err(told)?;
    let stage = Stage::on(db, Isolation::Serializable);
    stage.set(case).map_err(told)?;
    let stop = stage.db.failpoints().stop(point);
    let sessions = case.sessions.iter().map(|steps| Session::new(steps));
    let mut play = Play {
        case,
        stage: &stage,
        device: &device,
        options,
        point,
        damage,
        stop,
        sessions: sessions.collect(),
        commits: Vec::new(),
        judged: vec![false; case.sessions.len()],
        time: 0,
        acknowledged: Acknowledged::default(),
        synced: false,
    };
    for &session in order {
        play.step(session)
            .map_err(|what| format!("{what}, in the order {order:?}"))?;
    }
    play.finish()
        .map_err(|what| format!("{what}, in the order {order:?}"))?;
    Ok(play.acknowledged)
}

struct Play<'a> {
    case: &'a Case,
    stage: &'a Stage,
    device: &'a FaultDevice,
    options: Options,
    /// Where the device stops.
    point: &'static Failpoint,
    /// Damage of a cut.
    damage: Damage,
    stop: FailpointStop,
    sessions: Vec<Session<'a>>,
    /// The sessions whose commits have begun, in that order, which is that of the log.
    commits: Vec<usize>,
    /// True for each session whose answer was judged.
    judged: Vec<bool>,
    time: usize,
    acknowledged: Acknowledged,
    synced: bool,
}

impl Play<'_> {
    fn step(&mut self, session: usize) -> Result<(), String> {
        match self.case.sessions[session][..] {
            [Step::Sync, ..] => self.sync(),
            _ => {
                self.sessions[session].due += 1;
                self.settle()
            }
        }
    }

    fn is_writer(&self, session: usize) -> bool {
        let writes =
            |step: &Step| !matches!(step, Step::Get { .. } | Step::Scan { .. } | Step::Commit);
        self.case.sessions[session].iter().any(writes)
    }

    /// Lets sessions do what they can, and judges those that were answered.
    fn settle(&mut self) -> Result<(), String> {
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            for at in 0..self.sessions.len() {
                let went_on = self.sessions[at].go_on(self.stage, &mut self.time);
                goes_on |= went_on.map_err(|error| error.to_string())?;
                let session = &self.sessions[at];
                let begun = session.is_committing() || session.played.committed;
                if begun && !self.commits.contains(&at) {
                    self.commits.push(at);
                    let waits = session.is_committing() && !self.is_writer(at);
                    self.acknowledged.readers_waited += u64::from(waits);
                }
                if self.sessions[at].played.committed && !self.judged[at] {
                    self.judged[at] = true;
                    self.acknowledged.at_once += u64::from(!self.synced);
                    self.judge(at)?;
                }
            }
        }
        Ok(())
    }

    /// Lets the device sync once. If a commit waits, waits until one is answered.
    fn sync(&mut self) -> Result<(), String> {
        let open = |play: &Self| play.sessions.iter().filter(|s| s.is_committing()).count();
        let waiting = open(self);
        if waiting == 0 {
            return Ok(());
        }
        self.stop.reached();
        let next = self.stage.db.failpoints().stop(self.point);
        std::mem::replace(&mut self.stop, next).release();
        self.synced = true;
        while open(self) == waiting {
            thread::yield_now();
            self.settle()?;
        }
        Ok(())
    }

    /// Lets the device sync all that commits still wait for.
    fn finish(&mut self) -> Result<(), String> {
        self.stage.db.failpoints().clear(self.point);
        self.stop.release();
        self.synced = true;
        while self.sessions.iter().any(Session::is_committing) {
            thread::yield_now();
            self.settle()?;
        }
        Ok(())
    }

    /// Cuts the power now, when the commit of this session was just answered, and judges the
    /// result.
    fn judge(&self, at: usize) -> Result<(), String> {
        let told = |error: foxton::Error| error.to_string();
        let image = self.device.crash(self.damage, 0);
        let after = Database::open_on(Arc::new(image), self.options.clone()).map_err(told)?;
        let found = rows(&after).map_err(told)?;
        let mut states = vec![self.case.start.clone()];
        for &session in &self.commits {
            let mut rows = states.last().expect("there is a first state").clone();
            self.replay(session, &mut rows);
            states.push(rows);
        }
        let kept = states.iter().rposition(|rows| *rows == found);
        let kept = kept.ok_or_else(|| {
            format!("after a cut {found:?} was found, which is none of {states:?}")
        })?;
        let place = self.commits.iter().position(|&other| other == at);
        let place = place.expect("its commit was recorded before it was judged");
        let needed = match self.is_writer(at) {
            true => place + 1,
            // The first state in which it would have read the same.
            false => {
                let reads = |rows: &&Rows| self.replay(at, &mut (**rows).clone());
                let first = states[..=place].iter().position(|rows| reads(&rows));
                first.ok_or_else(|| format!("T{} has read a state that never existed", at + 1))?
            }
        };
        match kept >= needed {
            true => Ok(()),
            false => Err(format!(
                "T{} was answered, but a power cut loses what it depends on: {found:?}",
                at + 1
            )),
        }
    }

    /// Repeats what a session did; true if its answers are the same.
    fn replay(&self, session: usize, rows: &mut Rows) -> bool {
        let answers = &self.sessions[session].played.answers;
        let steps = &self.case.sessions[session];
        runs(self.case, rows, &steps[..answers.len()], answers)
    }
}
