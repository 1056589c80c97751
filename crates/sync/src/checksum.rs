//! CRC-32C: few instructions for short inputs, many bytes at a time for long ones.
//!
//! The library `crc32c` uses the processor's instruction, and computes three sums side by side over
//! long inputs. Before it handles short ones it checks their alignment and cuts them into thirds of
//! two sizes. For the two sums of a short log record that takes more than twice the instructions of
//! the loop here (`foxton bench log-insert --bare`). The library `crc-fast` folds long inputs by
//! carry-less multiplication, twice as fast as three sums where the processor has wide registers
//! for that.
//!
//! ```
//! use foxton_sync::checksum::crc32c;
//!
//! assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
//! assert_eq!(crc32c(crc32c(0, b"12345"), b"6789"), 0xe306_9283);
//! ```

use crc_fast::{CrcAlgorithm, Digest};

/// Bytes from which folding is used. Below this the instruction is as fast.
const LONG: usize = 512;

/// Returns the CRC-32C of `bytes` appended to bytes whose CRC-32C is `before`: 0 if there are none.
#[inline]
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    if bytes.len() >= LONG {
        return long(before, bytes);
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction, as was just checked.
        return unsafe { short(before, bytes) };
    }
    crc32c::crc32c_append(before, bytes)
}

fn long(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    digest.finalize() as u32
}

/// # Safety
///
/// The processor has SSE 4.2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
unsafe fn short(before: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};

    let (words, rest) = bytes.as_chunks::<8>();
    let check = words.iter().fold(u64::from(!before), |check, word| {
        _mm_crc32_u64(check, u64::from_le_bytes(*word))
    });
    // The instruction leaves the upper half zero.
    let check = rest
        .iter()
        .fold(check as u32, |check, byte| _mm_crc32_u8(check, *byte));
    !check
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every length around the words and around `LONG`, and some long ones, from every alignment,
    /// in one piece and in two.
    #[test]
    fn it_agrees_with_the_library() {
        let bytes: Vec<u8> = (0..70_000_u32)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let lengths =
            (0..200)
                .chain(LONG - 20..LONG + 50)
                .chain([3 * LONG, 4096, 10_001, 65_536, 69_000]);
        for length in lengths {
            for from in 0..8 {
                let piece = &bytes[from..from + length];
                let right = crc32c::crc32c(piece);
                assert_eq!(crc32c(0, piece), right, "{length} bytes from {from} on");
                let (left, rest) = piece.split_at(length / 3);
                assert_eq!(crc32c(crc32c(0, left), rest), right, "{length} in two");
            }
        }
    }
}
