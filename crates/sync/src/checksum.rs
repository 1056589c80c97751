//! CRC-32C of short bytes, in few instructions.
//!
//! The library `crc32c` is made for long bytes: it looks for their alignment, cuts them into thirds for three
//! sums side by side, and does so for two sizes of thirds, before it comes to what is left. Of the bytes of a log record
//! everything is left. For the two sums of a record of 120 bytes callgrind counted 297 instructions, and counts 120
//! here (`foxton bench log-insert --bare`). From 768 bytes on three sums side by side are faster, and the library has
//! them. So it has on processors without the instruction.
//!
//! ```
//! use foxton_sync::checksum::crc32c;
//!
//! assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
//! assert_eq!(crc32c(crc32c(0, b"12345"), b"6789"), 0xe306_9283);
//! ```

/// Bytes from which the library makes three sums side by side.
const LONG: usize = 768;

/// The CRC-32C of `bytes` behind bytes whose CRC-32C is `before`: zero, if there are none.
#[inline]
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() < LONG && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction, as was just looked up.
        return unsafe { short(before, bytes) };
    }
    crc32c::crc32c_append(before, bytes)
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

    /// Every length around the words and around `LONG`, from every alignment, in one piece and in two.
    #[test]
    fn it_is_what_the_library_says() {
        let bytes: Vec<u8> = (0..LONG as u32 + 100)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let lengths = (0..200).chain(LONG - 20..LONG + 50);
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
