//! Garbling files as a string of bytes says, which a fuzzer can vary.
//!
//! A script is read as a sequence of edits. Each names a file, a position in it, and a change. So a
//! fuzzer can change one thing and leave the rest, and what it finds is short. The first byte says
//! whether the checksums are [mended](crate::mend) afterwards.

use crate::mend::{Files, mend};

/// Numbers that programs seldom expect.
const ODD: [u64; 12] = [
    0,
    1,
    7,
    8,
    63,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 63,
    u64::MAX - 7,
    u64::MAX,
];

/// Largest number of edits in a script.
const MOST: usize = 12;

/// A script, read from its beginning.
#[derive(Debug)]
pub struct Script<'s>(&'s [u8]);

impl<'s> Script<'s> {
    /// Returns a script of these bytes.
    pub fn new(bytes: &'s [u8]) -> Script<'s> {
        Script(bytes)
    }

    /// Returns the next byte; 0 behind the end.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    fn number(&mut self) -> usize {
        usize::from(self.byte()) << 8 | usize::from(self.byte())
    }

    /// Garbles those of `files` whose names are `wanted`, until the script ends. Returns true if
    /// the checksums were mended.
    pub fn garble(mut self, files: &mut Files, wanted: impl Fn(&str) -> bool) -> bool {
        let is_mended = !self.byte().is_multiple_of(8);
        for _ in 0..MOST {
            if self.0.is_empty() {
                break;
            }
            self.edit(files, &wanted);
        }
        if is_mended {
            mend(files);
        }
        is_mended
    }

    fn edit(&mut self, files: &mut Files, wanted: &impl Fn(&str) -> bool) {
        let what = self.byte();
        let names: Vec<String> = files.keys().filter(|name| wanted(name)).cloned().collect();
        let Some(count) = (!names.is_empty()).then_some(names.len()) else {
            return;
        };
        let name = &names[usize::from(self.byte()) % count];
        if what % 32 == 31 {
            let other = &names[usize::from(self.byte()) % count];
            let bytes = files[other].clone();
            files.insert(name.clone(), bytes);
            return;
        }
        if what % 32 == 30 {
            files.remove(name);
            return;
        }
        let bytes = files.get_mut(name).expect("it was listed");
        let at = self.place(bytes.len());
        self.change(what % 10, bytes, at);
    }

    /// Draws a position below `length`: near the beginning, near the end, or anywhere.
    fn place(&mut self, length: usize) -> usize {
        let number = self.number();
        match number >> 14 {
            0 => (number & 0x3fff).min(length),
            1 => length.saturating_sub(number & 0x3fff),
            _ => ((number & 0x7fff) * length) >> 15,
        }
    }

    fn change(&mut self, what: u8, bytes: &mut Vec<u8>, at: usize) {
        let length = bytes.len();
        let to = |count: usize| at..(at + count).min(length);
        match what {
            0 => bytes[to(1)].fill(self.byte()),
            1 => bytes[to(1)]
                .iter_mut()
                .for_each(|byte| *byte ^= 1 << (self.byte() % 8)),
            2 | 3 => {
                let number = match self.byte() {
                    odd @ 0..32 => ODD[usize::from(odd) % ODD.len()],
                    _ => self.number() as u64,
                };
                let room = to([4, 8][usize::from(what) - 2]);
                let size = room.len();
                bytes[room].copy_from_slice(&number.to_le_bytes()[..size]);
            }
            4 => bytes.truncate(at),
            5 => {
                bytes.drain(to(usize::from(self.byte())));
            }
            6 => {
                let (from, count) = (self.place(length), usize::from(self.byte()));
                let copied = bytes[from..(from + count).min(length)].to_vec();
                bytes.splice(at..at, copied);
            }
            7 => {
                let (from, count) = (self.place(length), usize::from(self.byte()) * 8);
                let count = count.min(length - from).min(length - at);
                bytes.copy_within(from..from + count, at);
            }
            8 => bytes[to(usize::from(self.byte()) * 8)].fill(0),
            _ => {
                for place in to(usize::from(self.byte()) % 16) {
                    bytes[place] = self.byte();
                }
            }
        }
    }
}
