//! Memory that an owner's locks take, and its escalations: table locks that replace key locks.

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

/// Outcome of an owner's escalations, by transaction, so that nothing need be reset at its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct EscalationState {
    /// The last transaction that got a whole table.
    granted: OwnerId,
    /// The last transaction that tried, and the order of acquisition before which it does not try
    /// again.
    tried: (OwnerId, u32),
    /// The last transaction that traded keys for tables, and the number of keys.
    traded: (OwnerId, u32),
    /// Number of acquisitions from which on the owner checks its limits (`escalation`).
    pub(super) check_at: u32,
    /// Value of `check_at` at the beginning of a transaction.
    first: u32,
    /// True if the owner's record shows the memory of its locks.
    pub(super) published: bool,
}

impl EscalationState {
    pub(super) fn none(id: OwnerId, limits: &MemoryLimits) -> Self {
        // The id of another owner index, so never this owner's.
        let other = OwnerId::from_number(id.number().wrapping_sub(1));
        let first = limits.check_interval().saturating_add(1);
        Self {
            granted: other,
            tried: (other, 0),
            traded: (other, 0),
            check_at: first,
            first,
            published: false,
        }
    }

    /// Begins the next transaction, which has acquired nothing yet.
    #[inline(always)]
    pub(super) fn begin(&mut self) {
        self.check_at = self.first;
    }
}

impl Owner {
    /// True if this transaction has a whole table in place of further keys. Then a call of
    /// [`covers`](Self::covers) is worth its cost.
    #[inline]
    pub fn has_escalated(&self) -> bool {
        self.escalated.granted == self.id
    }

    /// True if the table of `name` is held in a mode that covers `name` in `mode`: X covers all
    /// modes; S, U and SIX cover sharing. As long as the table is held, no other owner can hold
    /// `name` in a conflicting mode.
    ///
    /// Managers do not know which name includes which: they lock every name that is requested. A
    /// caller that locks a table first, and its keys after that, may leave out the covered keys.
    #[inline(never)]
    pub fn covers(&self, name: Name, mode: Mode) -> bool {
        let table = name.parent();
        table.is_some_and(|table| self.covers_as(table, name, mode))
    }

    /// As [`covers`](Self::covers), for a key of `table`.
    pub(crate) fn covers_as(&self, table: Name, name: Name, mode: Mode) -> bool {
        let held = self.held_mode(table);
        held.is_some_and(|held| covers_key(held, name, mode))
    }

    /// Returns the number of entries in its lists, dead ones included. A lock in a queue is one
    /// entry, and so is a remembered block of neighbours.
    pub(crate) fn entry_count(&self) -> u32 {
        self.locks.len() as u32 + self.remembered().map_or(0, RememberedLocks::len)
    }

    /// Returns one name of each of those entries, and its mode.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Name, Mode)> {
        let list = self.remembered().into_iter();
        let firsts = list.flat_map(|list| (0..list.len()).filter_map(|at| list.locks(at).next()));
        firsts.chain(self.locks.iter().map(|entry| (entry.name, entry.mode)))
    }

    /// Returns the memory that its locks take, about, in bytes.
    pub(crate) fn lock_bytes(&self) -> usize {
        let remembered = self.remembered().map_or(0, RememberedLocks::len);
        self.locks.len() * LOCK_BYTES + remembered as usize * ENTRY_BYTES
    }

    /// Publishes the memory that its locks take.
    pub(crate) fn publish_memory(&mut self, bytes: usize) {
        self.record().memory.publish(bytes);
        self.escalated.published = true;
    }

    /// True if the owner has to check its limits.
    #[inline(always)]
    pub(crate) fn must_check_limits(&self) -> bool {
        self.acquired() >= self.escalated.check_at
    }

    /// Sets the next check after `more` acquisitions; 0 means at the next request.
    pub(crate) fn check_limits_after(&mut self, more: u32) {
        self.escalated.check_at = self.acquired().saturating_add(more);
    }

    /// Restarts checks and attempts after acquisitions have been renumbered.
    pub(super) fn restart_limit_checks(&mut self) {
        let limits = *self.owners().limits();
        self.escalated.tried = EscalationState::none(self.id, &limits).tried;
        self.check_limits_after(limits.check_interval());
    }

    /// Counts keys that were released because their table is held.
    pub(crate) fn record_traded(&mut self, keys: u32) {
        let traded = self.traded().saturating_add(keys);
        self.escalated.traded = (self.id, traded);
    }

    /// Returns how many keys this transaction has traded for tables.
    pub(super) fn traded(&self) -> u32 {
        let (id, traded) = self.escalated.traded;
        if id == self.id { traded } else { 0 }
    }

    /// True unless an escalation of this transaction failed a short while ago.
    pub(crate) fn may_escalate(&self) -> bool {
        let (id, again) = self.escalated.tried;
        id != self.id || self.acquired() >= again
    }

    /// Forbids another attempt before `by` more acquisitions.
    pub(crate) fn postpone_escalation(&mut self, by: u32) {
        let again = self.acquired().saturating_add(by.max(1));
        self.escalated.tried = (self.id, again);
    }

    /// Records that this transaction holds a whole table, by escalation or by request, so that
    /// [`covers`](Self::covers) is worth its cost.
    pub fn record_table_lock(&mut self) {
        self.escalated.granted = self.id;
    }

    /// Withdraws the published memory: the owner holds nothing any more, or too little to matter.
    #[cold]
    pub(super) fn withdraw_memory(&mut self) {
        self.record().memory.publish(0);
        self.escalated.published = false;
    }
}

/// True if a table held in this mode covers its key `name` in `mode`.
fn covers_key(held: Mode, name: Name, mode: Mode) -> bool {
    held == Mode::X || (held.covers(Mode::S) && mode.is_weak(name.class()))
}
