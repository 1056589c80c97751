//! First data cache, as the system reports it, and what follows for transactions. A transaction's
//! writes must stay there until it ends [001 §3.2.1], so only as many lines of one set fit as it
//! has ways [001 §3.2.2].

use std::{fs, path::Path};

/// A set-associative cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cache {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes of a line.
    pub line: u64,
    /// Lines of a set.
    pub ways: u64,
}

impl Cache {
    /// Returns the first data cache of the first processor, if the system reports it.
    pub fn here() -> Option<Cache> {
        let all = Path::new("/sys/devices/system/cpu/cpu0/cache");
        (0..8).find_map(|index| Cache::first_of(&all.join(format!("index{index}"))))
    }

    fn first_of(directory: &Path) -> Option<Cache> {
        let read = |name: &str| {
            let text = fs::read_to_string(directory.join(name)).ok()?;
            Some(text.trim().to_owned())
        };
        if read("level")? != "1" || read("type")? == "Instruction" {
            return None;
        }
        let cache = Cache {
            bytes: bytes(&read("size")?)?,
            line: read("coherency_line_size")?.parse().ok()?,
            ways: read("ways_of_associativity")?.parse().ok()?,
        };
        (cache.line > 0 && cache.ways > 0 && cache.sets() > 0).then_some(cache)
    }

    /// Number of sets.
    pub fn sets(self) -> u64 {
        self.bytes / self.line / self.ways
    }

    /// Number of sets that every `step`th line falls into; then the first set is used again [001,
    /// equation 3.2].
    pub fn sets_by(self, step: u64) -> u64 {
        self.sets() / greatest_common_divisor(self.sets(), step)
    }

    /// Number of lines that fit, of every `step`th line.
    pub fn lines_by(self, step: u64) -> u64 {
        self.sets_by(step) * self.ways
    }

    /// Describes the cache in a sentence.
    pub fn sentence(self) -> String {
        format!(
            "The first data cache here has {} KiB in lines of {} bytes: {} sets of {} ways",
            self.bytes >> 10,
            self.line,
            self.sets(),
            self.ways
        )
    }
}

/// Parses `48K`, as the system writes it.
fn bytes(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..end].parse().ok()?;
    match &text[end..] {
        "" => Some(number),
        "K" => Some(number << 10),
        "M" => Some(number << 20),
        _ => None,
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 3.2 of the document, and its figure 3.5: every second line reaches half of the cache,
    /// every fourth a quarter, and every odd one all of it.
    #[test]
    fn the_documents_cache_has_the_documents_sets() {
        let cache = Cache {
            bytes: 32 << 10,
            line: 64,
            ways: 8,
        };
        let sets: Vec<u64> = (1..=9).map(|step| cache.sets_by(step)).collect();
        assert_eq!(sets, [64, 32, 64, 16, 64, 32, 64, 8, 64]);
        assert_eq!(cache.lines_by(1), 512);
        assert_eq!(cache.lines_by(6), 256);
    }

    #[test]
    fn sizes_are_read_as_the_system_writes_them() {
        let read = ["48K", "1M", "512", "", "K", "3G"].map(bytes);
        let due = [Some(48 << 10), Some(1 << 20), Some(512), None, None, None];
        assert_eq!(read, due);
    }
}
