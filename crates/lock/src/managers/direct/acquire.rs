//! Asking: D1 to D9, and D12 to D15, for new names, for names that are held already, and for the
//! neighbours that a scan comes to.

use super::granule::{Granule, Moment};
use super::{Direct, LIST};
use crate::{
    escalation,
    manager::LockManager,
    mode::Mode,
    name::{Class, KeyBlock, Name},
    owner::{Owner, Scan, remembered::BlockBits, remembered_index::IndexMatch},
    request::{Reply, WaitMode},
};
use foxton_sync::worker::Worker;

/// Blocks of a range that are covered at once: a longer one is asked for key by key, for it may be
/// mostly holes.
const MOST_COVERED: u64 = 4;

/// Notes an entry that was appended, and with it so many keys.
#[inline]
fn own(owner: &mut Owner, index: u32, keys: u32) {
    if owner.notes.is_saved() {
        let order = owner.held.skip_order(); // Counts, too.
        owner.notes.date(index, order);
    } else {
        owner.notes.count();
    }
    owner.notes.count_scanned(keys - 1);
}

/// After the shortest ways.
impl Direct {
    /// D4 after any of them.
    #[cold]
    #[inline(never)]
    pub(super) fn reconsider(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        patience: WaitMode,
    ) -> Reply {
        let last = owner.list().len() - 1;
        owner.notes.uncount();
        if self.settle_doubt(worker, owner, last, name, mode) {
            owner.has_room(); // It has one order less, and may come this way each time.
            return Reply::Granted;
        }
        self.request_slowly(worker, owner, name, mode, patience)
    }
}

/// Everything else.
impl Direct {
    /// What the shortest way leaves. What is left most often is a short key, new to its owner, in a granule
    /// that is real.
    #[inline(never)]
    pub(super) fn request_otherwise(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        patience: WaitMode,
    ) -> Reply {
        let plain = owner.notes.is_open_to(self.home)
            && name.class() == Class::Key
            && !owner.held.is_worn();
        if plain && mode.is_weak(Class::Key) {
            let near = name.near_hash();
            let granule = self.key_granule(near);
            if !granule.invites(|| self.moment_of(owner)) {
                let hash = name.hash() as u32;
                // Where nothing with this hash is held (I1 of `notes`), remembered or not, neither is looked for.
                if !owner.is_to_look()
                    && (owner.notes.meet(near) || self.is_new_in_block(owner, name, hash))
                {
                    owner.notes.note_single(near);
                    return self.ask_real(worker, owner, (name, hash), mode, patience);
                }
            } else if name.block().is_none() && owner.notes.meet(near) {
                return self.remember_long(worker, owner, (name, near), mode, patience);
            }
        }
        self.request_slowly(worker, owner, name, mode, patience)
    }

    /// Whether a key is certainly not held, though others of its block are: where locks are real, mostly by themselves.
    #[inline]
    fn is_new_in_block(&self, owner: &Owner, name: Name, hash: u32) -> bool {
        const FEW: u32 = 4;
        let list = owner.list();
        let is_remembered = |block| (0..list.len()).any(|index| list.is_block(index, block));
        let block = name.block().filter(|_| list.len() <= FEW);
        block.is_some_and(|(block, _)| !is_remembered(block))
            && owner.held.find(name, hash).is_none()
    }

    /// D2 to D4 for a key that is in no block, and is new.
    #[inline(always)]
    fn remember_long(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, hash): (Name, u32),
        mode: Mode,
        patience: WaitMode,
    ) -> Reply {
        let (list, notes) = owner.list_and_notes();
        if !list.append_lock_at_once(name, hash, mode) {
            return self.request_slowly(worker, owner, name, mode, patience);
        }
        notes.count();
        self.fence.light_expedited();
        match self.key_granule(hash).is_biased() {
            true => Reply::Granted,
            false => self.reconsider(worker, owner, name, mode, patience),
        }
    }

    /// The time, but seldom: for a granule that becomes biased again a little later no harm is done.
    #[inline(always)]
    fn moment_of(&self, owner: &Owner) -> Option<Moment> {
        const EVERY: u32 = 16;
        let due = owner.held.acquired().is_multiple_of(EVERY);
        due.then(|| self.moment())
    }

    /// D8 for a name that is not held.
    #[inline(always)]
    fn ask_real(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, hash): (Name, u32),
        mode: Mode,
        patience: WaitMode,
    ) -> Reply {
        let real = &self.real;
        let reply = real.request_new(
            worker,
            owner,
            (name, hash),
            mode,
            patience,
            |wait, reach| {
                real.detector.check(real, worker, wait, reach);
            },
        );
        if matches!(reply, Reply::Waiting) {
            owner.notes.close();
        }
        reply
    }

    /// Any request at all.
    #[inline(never)]
    fn request_slowly(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        patience: WaitMode,
    ) -> Reply {
        owner.assert_usable(&self.real.registry);
        mode.assert_suits(&name);
        if !owner.has_room() {
            return owner.refuse_for_order(name, mode);
        }
        owner.notes.open();
        if owner.is_to_look()
            && let Some(reply) = escalation::look(self, worker, owner, (name, mode))
        {
            return reply; // D14
        }
        let reply = self.decide(worker, owner, name, mode, patience);
        if matches!(reply, Reply::Waiting) {
            owner.notes.close();
        }
        reply
    }

    fn decide(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        patience: WaitMode,
    ) -> Reply {
        let near = name.near_hash();
        let found = self.find_remembered(owner, name, near);
        if let IndexMatch::Lock(index, held) = found {
            return self.request_remembered(worker, owner, name, (index, held), mode, patience);
        }
        let hash = name.hash() as u32;
        if let Some(at) = owner.held.find(name, hash) {
            return self.request_again(worker, owner, at, mode, patience);
        }
        let granule = self.granule(&name, hash);
        if mode.is_weak(name.class())
            && granule.invites(|| Some(self.moment())) // D1, D9
            && self.remember(worker, owner, granule, (name, near), mode, found)
        {
            return Reply::Granted;
        }
        self.request_real(worker, owner, (name, hash), mode, patience)
    }

    /// Where `name` is remembered.
    #[inline]
    pub(super) fn find_remembered(&self, owner: &mut Owner, name: Name, hash: u32) -> IndexMatch {
        let (list, notes) = owner.list_and_notes();
        match notes.is_new(hash) {
            false => notes.find(list, name, hash),
            true => IndexMatch::Nothing,
        }
    }

    /// D4 in part, and every other moment at which one name must be certain: takes it, which stands at
    /// `index`, out of the list, and says in which slot it is real.
    pub(super) fn take_back(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (index, hash): (u32, u32),
        name: Name,
    ) -> Option<u32> {
        worker.account().passed(&LIST);
        let (list, notes) = owner.list_and_notes();
        let slot = list.take(index, name);
        notes.drop_dead(list, index, hash);
        slot
    }

    /// D4 for a name that stands at `index` and is not counted. `false`: it is not held.
    fn settle_doubt(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        index: u32,
        name: Name,
        mode: Mode,
    ) -> bool {
        let near = name.near_hash();
        let slot = self.take_back(worker, owner, (index, near), name);
        if let Some(slot) = slot {
            owner.notes.note_single(near);
            owner.held.push(name, name.hash() as u32, slot, mode);
        }
        slot.is_some()
    }

    /// D4 for keys of the block at `index`: whether all that was set just now is held.
    pub(super) fn keep(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (index, hash): (u32, u32),
        fresh: BlockBits,
    ) -> bool {
        worker.account().passed(&LIST);
        let (list, notes) = owner.list_and_notes();
        let kept = list.keep(index, fresh);
        notes.drop_dead(list, index, hash);
        kept
    }

    /// D2 to D4, for a granule that was biased a moment ago. `false`: the lock is not held.
    fn remember(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        granule: &Granule,
        (name, near): (Name, u32),
        mode: Mode,
        found: IndexMatch,
    ) -> bool {
        owner.notes.see(near);
        let list = owner.list();
        let (index, is_new) = match (name.block(), found) {
            (Some((_, at)), IndexMatch::Block(index))
                if !owner.notes.is_before_savepoint(index) =>
            {
                list.extend_all(index, BlockBits::one(at, mode)); // D12
                (index, false)
            }
            (Some((block, at)), _) => (list.append_block(block, BlockBits::one(at, mode)), true),
            (None, _) => (list.append(name, near, mode), true),
        }; // D2
        self.fence.light();
        if !granule.is_biased() {
            return self.settle_doubt(worker, owner, index, name, mode); // D4
        }
        match is_new {
            true => own(owner, index, 1), // D3
            false => owner.notes.count(),
        }
        true
    }

    /// A request for a name that is not held and is not to be remembered.
    #[inline(never)]
    fn request_real(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, hash): (Name, u32),
        mode: Mode,
        patience: WaitMode,
    ) -> Reply {
        let strong = !mode.is_weak(name.class());
        let granule = self.granule(&name, hash);
        let near = name.near_hash();
        // What is in the way of a strong lock is real where the granule is: who passes over need not count there.
        if strong
            && patience == WaitMode::Skip
            && granule.is_settled()
            && self.real.is_obstructed(worker, owner, (&name, hash), mode)
        {
            return owner.pass_over();
        }
        owner.notes.see(near);
        owner.notes.note_single(near);
        if strong {
            self.enter(worker, granule, &name, hash);
        }
        let reply = self.ask_real(worker, owner, (name, hash), mode, patience);
        if strong && matches!(reply, Reply::Refused(_) | Reply::Skipped) {
            self.leave(worker, granule);
        }
        reply
    }

    /// A request for the name held at `at`, as a real lock.
    #[inline(never)]
    fn request_again(
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
        let (target, class) = (held.mode.supremum(mode), held.name.class());
        let granule = self.granule(&held.name, held.hash);
        let counts = held.mode.is_weak(class) && !target.is_weak(class);
        if counts {
            self.enter(worker, granule, &held.name, held.hash);
        }
        let reply = self.convert(worker, owner, at, mode, patience);
        if counts && matches!(reply, Reply::Refused(_) | Reply::Skipped) {
            self.leave(worker, granule);
        }
        reply
    }

    fn convert(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        at: usize,
        mode: Mode,
        patience: WaitMode,
    ) -> Reply {
        let real = &self.real;
        real.request_again(worker, owner, at, mode, patience, |wait, reach| {
            real.detector.check(real, worker, wait, reach);
        })
    }

    /// A request for a name that is remembered at `index` in the mode `held`.
    #[inline(never)]
    fn request_remembered(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        (index, held): (u32, Mode),
        mode: Mode,
        patience: WaitMode,
    ) -> Reply {
        if held.covers(mode) {
            owner.re_asks += 1;
            if name.class() == Class::Table {
                owner.notes.note_table(name, held);
            }
            return Reply::Held;
        }
        let (target, class) = (held.supremum(mode), name.class());
        let (hash, near) = (name.hash() as u32, name.near_hash());
        let granule = self.granule(&name, hash);
        // Under the latch no fence is needed: a revoker that missed the stronger mode had the
        // latch before, and counted itself in the granule before that.
        if target.is_weak(class) {
            worker.account().passed(&LIST);
            let list = owner.list();
            if list.strengthen(index, name, target, || granule.is_biased()) {
                return Reply::Granted;
            }
        }
        // It leaves the list for the locks that are held one by one, as a real one, and is as old there.
        self.enter(worker, granule, &name, hash);
        let order = owner.notes.order_of(index);
        let is_older = owner.notes.is_before_savepoint(index);
        let slot = self.take_back(worker, owner, (index, near), name);
        let slot = slot.expect("I2: in a real granule a lock that is held is real");
        owner.notes.note_single(near);
        owner.notes.uncount();
        match is_older {
            true => owner.held.push_earlier((name, hash), slot, held, order),
            false => owner.held.push(name, hash, slot, held),
        }
        let at = owner.held.last();
        let reply = self.convert(worker, owner, at, mode, patience);
        if target.is_weak(class) || matches!(reply, Reply::Refused(_) | Reply::Skipped) {
            self.leave(worker, granule);
        }
        reply
    }
}

/// Neighbours.
impl Direct {
    /// Whether a scan may extend the block at `index`, if the shortest way is closed.
    #[inline(never)]
    pub(super) fn may_extend(&self, owner: &Owner, index: u32) -> bool {
        owner.assert_usable(&self.real.registry);
        index < owner.list().len() && !owner.notes.is_before_savepoint(index)
    }

    /// A key that a scan has come to and that does not simply extend the block that it came from.
    #[inline(never)]
    pub(super) fn request_in_next_block(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        scan: &mut Scan,
        name: Name,
        mode: Mode,
        patience: WaitMode,
    ) -> Reply {
        let block = name.block().filter(|_| mode.is_weak(name.class()));
        let Some((block, at)) = block else {
            return self.request_otherwise(worker, owner, name, mode, patience);
        };
        let hash = block.hash();
        let granule = self.key_granule(hash);
        if owner.notes.is_open_to(self.home) && granule.is_biased() && owner.notes.meet(hash) {
            let (list, notes) = owner.list_and_notes();
            if list.append_at_once(block, BlockBits::one(at, mode)) {
                notes.count();
                self.fence.light_expedited();
                if !granule.is_biased() {
                    return self.reconsider(worker, owner, name, mode, patience);
                }
                scan.enter(list.len() - 1, block, hash);
                return Reply::Granted;
            }
        }
        // A key that may be held by itself is asked for by itself (I2 of `notes`).
        let alone = owner.notes.may_have_single(hash) || owner.held.is_worn();
        if alone || !granule.invites(|| Some(self.moment())) {
            return self.request(worker, owner, name, mode, patience);
        }
        let bits = BlockBits::one(at, mode);
        let known = match self.find_remembered(owner, name, hash) {
            IndexMatch::Lock(index, _) => {
                scan.enter(index, block, hash);
                return self.request(worker, owner, name, mode, patience); // Held already.
            }
            IndexMatch::Block(index) if !owner.notes.is_before_savepoint(index) => Some(index),
            IndexMatch::Block(_) | IndexMatch::Nothing => None,
        };
        if !self.set_bits(worker, owner, granule, (block, hash), bits, known) {
            return self.request(worker, owner, name, mode, patience); // D4
        }
        let index = known.unwrap_or_else(|| owner.list().len() - 1);
        scan.enter(index, block, hash);
        Reply::Granted
    }

    /// D12 and D15: sets `bits`, none of which is set, in the block that has the entry at `known`, or in a
    /// new entry. `false`: not all of it is held.
    #[inline]
    fn set_bits(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        granule: &Granule,
        (block, hash): (KeyBlock, u32),
        bits: BlockBits,
        known: Option<u32>,
    ) -> bool {
        owner.notes.see(hash);
        let list = owner.list();
        let (index, fresh) = match known {
            Some(index) => match list.extend_all(index, bits) {
                Some(fresh) => (index, fresh),
                None => return false,
            },
            None => (list.append_block(block, bits), bits), // D2
        };
        self.fence.light();
        let kept = granule.is_biased() || self.keep(worker, owner, (index, hash), fresh); // D3, D4
        let keys = if kept { fresh.all().count_ones() } else { 0 };
        match known {
            Some(_) => owner.notes.count_scanned(keys),
            None if owner.list().is_dead(index) => {}
            None => own(owner, index, keys.max(1)),
        }
        kept
    }

    /// D15 for all blocks from that of `first` to that of `last`, if they are few.
    #[inline]
    pub(super) fn cover_blocks(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        first: Name,
        last: Name,
    ) -> bool {
        let (Some((low, from)), Some((high, to))) = (first.block(), last.block()) else {
            return false;
        };
        let reach = high.base.wrapping_sub(low.base);
        if low.origin != high.origin || first > last || reach >= 64 * MOST_COVERED {
            return false;
        }
        if owner.held.is_worn() {
            return false; // Who asks for one of them gets new orders.
        }
        let mut block = low;
        loop {
            let is_last = block == high;
            let below = if is_last {
                u64::MAX >> (63 - to)
            } else {
                u64::MAX
            };
            let bits = match block == low {
                // The gap before the first is not asked for.
                true => BlockBits {
                    keys: below & u64::MAX << from,
                    gaps: below & (u64::MAX - 1) << from,
                },
                false => BlockBits {
                    keys: below,
                    gaps: below,
                },
            };
            if !self.cover_block(worker, owner, block, bits) {
                return false;
            }
            if is_last {
                return true;
            }
            block.base += 64;
        }
    }

    /// D15 for one block.
    #[inline]
    fn cover_block(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        block: KeyBlock,
        bits: BlockBits,
    ) -> bool {
        let hash = block.hash();
        let granule = self.key_granule(hash);
        if owner.notes.may_have_single(hash) || !granule.invites(|| Some(self.moment())) {
            return false;
        }
        let known = match self.find_remembered(owner, block.name(0), hash) {
            IndexMatch::Lock(index, _) | IndexMatch::Block(index) => Some(index),
            IndexMatch::Nothing => None,
        };
        // What goes back to a savepoint goes back key by key, or by the entry: here it would be neither.
        if known.is_some_and(|index| owner.notes.is_before_savepoint(index)) {
            return false;
        }
        self.set_bits(worker, owner, granule, (block, hash), bits, known)
    }
}
