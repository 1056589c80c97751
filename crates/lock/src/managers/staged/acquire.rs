//! Asking for a lock that is not simply granted: once more by its owner, or in front of somebody else.
//!
//! The first look, without the latch, is `Chains::acquire`. Who does not get past it comes to `contend`:
//! announce, look again, be granted, be refused, or stand in the line, all under the latch of the line
//! (I1 to I4 of `manager`).

use super::{
    chain::{Chains, NewRequest, NotGranted},
    manager::{Staged, WAIT, are_in_the_way},
    wait_queue::{ChainConflict, WaitQueues, obstacles},
};
use crate::{
    deadlock::WaitEdges,
    mode::{Mode, Set},
    owner::{
        Owner, PendingWait,
        owner_table::{WaitInfo, Wakes},
    },
    request::{Reply, WaitMode},
};
use foxton_sync::worker::Worker;

/// What became of a request that could not be granted at once.
enum Decision {
    Granted,
    Busy(Vec<ChainConflict>),
    Waiting(Box<(WaitInfo, WaitEdges)>),
}

#[expect(
    private_bounds,
    reason = "what chains look like is not for outsiders to choose"
)]
impl<C: Chains> Staged<C> {
    /// A request for the name held at `at`: nothing to do, or a conversion.
    #[inline(never)]
    pub(super) fn request_again(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        at: usize,
        mode: Mode,
        patience: WaitMode,
    ) -> Reply {
        let held = *owner.held.at(at);
        if held.mode.covers(mode) {
            owner.re_asks += 1;
            return Reply::Held;
        }
        // A transaction that has asked for nothing else may go up with what is kept from those before it.
        self.note_running(owner);
        let asked = NewRequest {
            name: held.name,
            hash: held.hash,
            owner: owner.id(),
            mode: held.mode.supremum(mode),
            replaces: Some(held.slot),
        };
        // Two: whoever cancels after the grant goes back to the weaker mode, and cannot be refused then.
        if self.index.reserve(worker, &mut owner.spare, 2).is_none() {
            return self.refuse_for_room(worker, owner, asked.name, asked.mode);
        }
        match self
            .chains
            .acquire(&self.index, worker, &asked, &mut owner.spare)
        {
            Ok(request) => {
                owner.held.set_mode(at, asked.mode);
                owner.held.set_slot(at, request);
                Reply::Granted
            }
            Err(NotGranted::Blocked(request)) => {
                self.contend(worker, owner, asked, Some(at), request, patience)
            }
            Err(NotGranted::Full) => self.refuse_for_room(worker, owner, asked.name, asked.mode),
        }
    }

    /// Notes that a transaction runs, where somebody wants to know.
    #[inline]
    pub(super) fn note_running(&self, owner: &Owner) {
        if self.index.asks_who_runs() {
            owner.record().run_since(|| self.index.moment());
        }
    }

    /// A request that could not be granted without the latch.
    #[cold]
    #[inline(never)]
    pub(super) fn contend(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        asked: NewRequest,
        converts: Option<usize>,
        request: u32,
        patience: WaitMode,
    ) -> Reply {
        let mut wakes = Wakes::new();
        let decided = self.with(worker, asked.hash, |lines| {
            self.decide(worker, owner, lines, &asked, request, patience, &mut wakes)
        });
        drop(wakes);
        match decided {
            Decision::Granted => {
                match converts {
                    Some(at) => {
                        owner.held.set_mode(at, asked.mode);
                        owner.held.set_slot(at, request);
                    }
                    None => owner.held.push(asked.name, asked.hash, request, asked.mode),
                }
                Reply::Granted
            }
            Decision::Busy(_) if patience == WaitMode::Skip => owner.pass_over(),
            Decision::Busy(obstacles) => {
                owner.refuse_at_once(asked.name, asked.mode, self.blockers(obstacles))
            }
            Decision::Waiting(wait) => {
                let (waiting, reach) = *wait;
                let NewRequest {
                    name, hash, mode, ..
                } = asked;
                owner.pending = Some(PendingWait {
                    name,
                    hash,
                    slot: request,
                    ticket: waiting.ticket,
                    mode,
                    converts,
                    since: waiting.since,
                });
                worker.account().passed(&WAIT);
                self.detector.check(self, worker, &waiting, reach);
                Reply::Waiting
            }
        }
    }

    /// Under the latch: announce, look, decide.
    #[expect(clippy::too_many_arguments, reason = "one step of one story")]
    fn decide<'m>(
        &'m self,
        worker: &Worker,
        owner: &Owner,
        lines: &mut WaitQueues,
        asked: &NewRequest,
        request: u32,
        patience: WaitMode,
        wakes: &mut Wakes<'m>,
    ) -> Decision {
        let NewRequest {
            name, hash, mode, ..
        } = *asked;
        let converts = asked.replaces.is_some();
        self.chains.announce(hash, mode.set());
        let holders = self.chains.holders(&self.index, hash, &name);
        let line = lines.get(&name);
        let ahead = line.map_or(Set::NONE, |line| line.ahead_of_next(converts));
        if !ahead.meets(mode.conflicts()) && !are_in_the_way(&holders, asked.owner, mode) {
            let awaited = self.awaited(lines, hash);
            self.chains.grant(&self.index, asked, request, awaited);
            return Decision::Granted;
        }
        if patience != WaitMode::Wait {
            let obstacles = match line {
                _ if patience == WaitMode::Skip => Default::default(),
                Some(line) => {
                    let position = line.position_of_next(converts);
                    line.obstacles(&holders, asked.owner, mode, position)
                }
                None => obstacles(&holders, asked.owner, mode),
            };
            let mut retired = self.index.retire(worker);
            self.chains
                .withdraw(&self.index, hash, request, &mut retired);
            self.set_awaited(lines, hash);
            self.regrant(worker, lines, &name, wakes);
            return Decision::Busy(obstacles);
        }
        let waiting = owner.prepare_wait(name, mode);
        let line = lines.enqueue(asked, request, waiting.ticket);
        let position = line.position(waiting.wait_ticket());
        let position = position.expect("it has just been put there");
        let reach = line.reach(&holders, position, asked.owner.place());
        // Whoever saw this request and not yet that it would wait may be in the line for it.
        self.regrant(worker, lines, &name, wakes);
        Decision::Waiting(Box::new((waiting, reach)))
    }
}
