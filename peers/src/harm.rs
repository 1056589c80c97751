//! The files of a database, and what is done to them: the same for every engine.
//!
//! A place is drawn from the blocks of 4,096 bytes that hold anything but zeros, so that room which
//! an engine set aside and never used is not hit. Files that carry a lock, and nothing else, are
//! left alone.

use crate::{Outcome, rows::mix};
use std::{fs, fs::File, os::unix::fs::FileExt, path::Path};

/// The damage.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Harm {
    /// One byte becomes another.
    Byte,
    /// A block becomes zeros.
    Zeroed,
    /// Two blocks change places, within a file or between two.
    Swapped,
    /// A file is cut at a place that held something.
    Truncated,
}

impl Harm {
    pub(crate) const ALL: [Harm; 4] = [Harm::Byte, Harm::Zeroed, Harm::Swapped, Harm::Truncated];
}

const BLOCK: usize = 4096;
const LOCKS: [&str; 2] = ["lock", "lock.mdb"];

/// All files of a database; of each, its name and its bytes.
#[derive(Debug, Clone)]
pub(crate) struct Files(Vec<(String, Vec<u8>)>);

impl Files {
    pub(crate) fn read(folder: &Path) -> Outcome<Files> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name().into_string();
            let name = name.map_err(|name| format!("the name {}", name.display()))?;
            if !LOCKS.contains(&name.as_str()) {
                files.push((name.clone(), fs::read(folder.join(name))?));
            }
        }
        files.sort();
        Ok(Files(files))
    }

    /// Makes `folder` hold these files and no others.
    pub(crate) fn write(&self, folder: &Path) -> Outcome {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
        for (name, bytes) in &self.0 {
            let file = File::create(folder.join(name))?;
            file.set_len(bytes.len() as u64)?;
            for (index, block) in bytes.chunks(BLOCK).enumerate() {
                if is_used(block) {
                    file.write_all_at(block, (index * BLOCK) as u64)?;
                }
            }
        }
        Ok(())
    }

    /// Bytes in blocks that hold something.
    pub(crate) fn used_bytes(&self) -> usize {
        let blocks = self.0.iter().flat_map(|(_, bytes)| bytes.chunks(BLOCK));
        blocks.filter(|block| is_used(block)).map(<[u8]>::len).sum()
    }

    /// Does harm as `seed` says.
    pub(crate) fn harm(&mut self, harm: Harm, seed: u64) {
        let draw = |what: u64, count: usize| (mix(mix(seed) ^ what) % count as u64) as usize;
        let (file, place) = self.place(draw(1, self.used_bytes()));
        match harm {
            Harm::Byte => self.0[file].1[place] ^= 1 + draw(2, 255) as u8,
            Harm::Zeroed => block(&mut self.0[file].1, place).fill(0),
            Harm::Truncated => self.0[file].1.truncate(place),
            Harm::Swapped => {
                let (other, other_place) = self.place(draw(3, self.used_bytes()));
                let mut one = block(&mut self.0[file].1, place).to_vec();
                let two = block(&mut self.0[other].1, other_place);
                let both = one.len().min(two.len());
                one[..both].swap_with_slice(&mut two[..both]);
                block(&mut self.0[file].1, place)[..both].copy_from_slice(&one[..both]);
            }
        }
    }

    /// Where the `n`-th byte is of those in blocks that hold something.
    fn place(&self, mut n: usize) -> (usize, usize) {
        for (file, (_, bytes)) in self.0.iter().enumerate() {
            for (index, block) in bytes.chunks(BLOCK).enumerate() {
                match is_used(block) {
                    true if n < block.len() => return (file, index * BLOCK + n),
                    true => n -= block.len(),
                    false => {}
                }
            }
        }
        unreachable!("n is below used_bytes")
    }
}

fn is_used(block: &[u8]) -> bool {
    block.iter().any(|&byte| byte != 0)
}

/// The block around `place`.
fn block(bytes: &mut [u8], place: usize) -> &mut [u8] {
    let begin = place / BLOCK * BLOCK;
    let end = (begin + BLOCK).min(bytes.len());
    &mut bytes[begin..end]
}
