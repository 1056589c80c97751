//! Giving back: D10 and D11, single names, and what a wait that came to nothing was counted for.

use super::granule::Granule;
use super::{Direct, LIST, index_of};
use crate::{
    held,
    mode::Mode,
    name::Name,
    owner::{Owner, Pending},
    registry::Wakes,
    remembered::Slots,
};
use foxton_sync::worker::Worker;

impl Direct {
    /// The granule that a wait is counted in, to be discounted unless it ends with the lock.
    pub(super) fn counted(&self, owner: &Owner) -> Option<&Granule> {
        let Pending {
            name,
            hash,
            mode,
            converts,
            ..
        } = owner.pending?;
        let was_strong = converts.is_some_and(|at| !owner.held.at(at).mode.is_weak(name.class()));
        let counts = !was_strong && !mode.is_weak(name.class());
        counts.then(|| self.granule(&name, hash))
    }

    pub(super) fn discount(&self, worker: &Worker, granule: Option<&Granule>) {
        if let Some(granule) = granule {
            self.leave(worker, granule);
        }
    }

    /// Gives back a lock that is no longer among those held. `slot` is where it is real; a lock that is
    /// only remembered is gone already.
    pub(super) fn give_back<'m>(
        &'m self,
        worker: &Worker,
        mut entry: held::Entry,
        slot: Option<u32>,
        wakes: &mut Wakes<'m>,
    ) {
        if let Some(slot) = slot {
            entry.slot = slot;
            self.real.give_back(worker, &entry, wakes);
        }
        if !entry.mode.is_weak(entry.name.class()) {
            self.leave(worker, self.granule(&entry.name, entry.hash));
        }
    }

    /// Gives back one lock that was just taken out of those held.
    pub(super) fn give_back_one<'m>(
        &'m self,
        worker: &Worker,
        owner: &Owner,
        entry: held::Entry,
        wakes: &mut Wakes<'m>,
    ) {
        let slot = match index_of(&entry) {
            Some(index) => self.take_back(worker, owner.remembered(), index),
            None => Some(entry.slot),
        };
        self.give_back(worker, entry, slot, wakes);
    }

    /// Gives back a key that was held by the block and has become real.
    pub(super) fn give_back_key<'m>(
        &'m self,
        worker: &Worker,
        name: Name,
        slot: u32,
        mode: Mode,
        wakes: &mut Wakes<'m>,
    ) {
        let entry = held::Entry::loose(name, name.hash() as u32, slot, mode);
        self.real.give_back(worker, &entry, wakes);
    }

    /// Gives back a name that is held by the block, if it is.
    pub(super) fn release_in_block(&self, worker: &Worker, owner: &Owner, name: Name) -> bool {
        let Some((index, at, mode)) = owner.find_in_blocks(name) else {
            return false;
        };
        worker.account().passed(&LIST);
        if let Some(slot) = owner.remembered().take_key(index, at) {
            let mut wakes = Wakes::new();
            self.give_back_key(worker, name, slot, mode, &mut wakes);
        }
        true
    }

    /// D11, and everything that is real.
    #[inline(never)]
    pub(super) fn release_real(&self, worker: &Worker, owner: &mut Owner, revoked: bool) {
        let mut wakes = Wakes::new();
        let mut converted = Slots::default();
        if revoked {
            worker.account().passed(&LIST);
            converted = owner.remembered().collect();
            for (name, slot, mode) in converted.keys() {
                self.give_back_key(worker, name, slot, mode, &mut wakes);
            }
        }
        for &entry in owner.held.iter().rev() {
            let slot = match index_of(&entry) {
                Some(index) => converted.get(index),
                None => Some(entry.slot),
            };
            self.give_back(worker, entry, slot, &mut wakes);
        }
        owner.forget_held();
    }
}
