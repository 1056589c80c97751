//! What an owner knows of how much it holds, and of whole tables that it was given in the place of
//! keys.

use super::Owner;
use crate::{
    mode::Mode,
    name::Name,
    owner::{
        memory_limits::{ENTRY_BYTES, LOCK_BYTES, MemoryLimits},
        remembered::RememberedLocks,
    },
    request::OwnerId,
};

/// What became of an owner's escalations: by transaction, so that none need be forgotten at its
/// end.
#[derive(Debug, Clone, Copy)]
pub(super) struct EscalationState {
    /// The last transaction that got a whole table.
    granted: OwnerId,
    /// The last one that tried, and the order of acquisition before which it does not try again.
    tried: (OwnerId, u32),
    /// The last one that traded keys for tables, and how many.
    traded: (OwnerId, u32),
    /// The count of acquisitions from which on it looks how much it holds (`escalate`).
    pub(super) check_at: u32,
    /// What that is when a transaction begins.
    first: u32,
    /// Whether its record says how much.
    pub(super) published: bool,
}

impl EscalationState {
    pub(super) fn none(id: OwnerId, limits: &MemoryLimits) -> Self {
        // The id of another place: never this owner's.
        let nobody = OwnerId::from_number(id.number().wrapping_sub(1));
        let first = limits.check_interval().saturating_add(1);
        Self {
            granted: nobody,
            tried: (nobody, 0),
            traded: (nobody, 0),
            check_at: first,
            first,
            published: false,
        }
    }

    /// The next transaction begins, and has acquired nothing yet.
    #[inline(always)]
    pub(super) fn begin(&mut self) {
        self.check_at = self.first;
    }
}

impl Owner {
    /// Whether this transaction has been given a whole table in the place of further keys. Then it
    /// is worth asking whether [`covers`](Self::covers).
    #[inline]
    pub fn has_escalated(&self) -> bool {
        self.escalated.granted == self.id
    }

    /// Whether the table of `name` is held in a mode that is as good as `name` itself in `mode`: X
    /// for everything, and S, U and SIX for sharing. Nobody else can then have or get `name` in a
    /// mode that conflicts, for as long as the table is held.
    ///
    /// Managers know names, and not which includes which: they lock whatever they are asked for.
    /// Who asks for a table first, and for its keys after that, may leave out those that are
    /// covered.
    #[inline(never)]
    pub fn covers(&self, name: Name, mode: Mode) -> bool {
        let table = name.parent();
        table.is_some_and(|table| self.covers_as(table, name, mode))
    }

    /// The same for a key of `table`.
    pub(crate) fn covers_as(&self, table: Name, name: Name, mode: Mode) -> bool {
        let held = self.held_mode(table);
        held.is_some_and(|held| covers_key(held, name, mode))
    }

    /// How many entries its lists have, those that are no more among them: a lock that stands in a
    /// queue is one, and so is a block of neighbours that is remembered.
    pub(crate) fn entry_count(&self) -> u32 {
        self.locks.len() as u32 + self.remembered().map_or(0, RememberedLocks::len)
    }

    /// A name of each of those entries, and its mode.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Name, Mode)> {
        let list = self.remembered().into_iter();
        let firsts = list.flat_map(|list| (0..list.len()).filter_map(|at| list.locks(at).next()));
        firsts.chain(self.locks.iter().map(|entry| (entry.name, entry.mode)))
    }

    /// What its locks take, about, in bytes.
    pub(crate) fn lock_bytes(&self) -> usize {
        let remembered = self.remembered().map_or(0, RememberedLocks::len);
        self.locks.len() * LOCK_BYTES + remembered as usize * ENTRY_BYTES
    }

    /// Has everybody see how much that is.
    pub(crate) fn publish_memory(&mut self, bytes: usize) {
        self.record().memory.publish(bytes);
        self.escalated.published = true;
    }

    /// Whether it is time to look how much is held.
    #[inline(always)]
    pub(crate) fn must_check_limits(&self) -> bool {
        self.acquired() >= self.escalated.check_at
    }

    /// Looks again after so many more acquisitions; for 0 with the next request.
    pub(crate) fn check_limits_after(&mut self, more: u32) {
        self.escalated.check_at = self.acquired().saturating_add(more);
    }

    /// Acquisitions are counted from somewhere else: it looks, and tries, when it has acquired some
    /// more.
    pub(super) fn restart_limit_checks(&mut self) {
        let limits = *self.owners().limits();
        self.escalated.tried = EscalationState::none(self.id, &limits).tried;
        self.check_limits_after(limits.check_interval());
    }

    /// So many keys were given back, since their table is held.
    pub(crate) fn record_traded(&mut self, keys: u32) {
        let traded = self.traded().saturating_add(keys);
        self.escalated.traded = (self.id, traded);
    }

    /// How many keys this transaction has traded for tables.
    pub(super) fn traded(&self) -> u32 {
        let (id, traded) = self.escalated.traded;
        if id == self.id { traded } else { 0 }
    }

    /// Whether this transaction has not tried in vain to have a whole table just now.
    pub(crate) fn may_escalate(&self) -> bool {
        let (id, again) = self.escalated.tried;
        id != self.id || self.acquired() >= again
    }

    /// Does not try again before so many more acquisitions.
    pub(crate) fn postpone_escalation(&mut self, by: u32) {
        let again = self.acquired().saturating_add(by.max(1));
        self.escalated.tried = (self.id, again);
    }

    /// Has been given a whole table, by escalation or because it was asked for: from now on it is
    /// worth asking whether one [`covers`](Self::covers).
    pub fn record_table_lock(&mut self) {
        self.escalated.granted = self.id;
    }

    /// It holds nothing any more, or keeps so little that nobody need know.
    #[cold]
    pub(super) fn withdraw_memory(&mut self) {
        self.record().memory.publish(0);
        self.escalated.published = false;
    }
}

/// Whether a table held in this mode is as good as its key `name` in `mode`.
fn covers_key(held: Mode, name: Name, mode: Mode) -> bool {
    held == Mode::X || (held.covers(Mode::S) && mode.is_weak(name.class()))
}
