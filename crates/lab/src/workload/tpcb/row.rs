//! Rows as bytes: numbers first, little-endian, then a filler up to the benchmark's size.
//!
//! ```text
//! balance row   | balance i64 | branch u32 | filler ...            | 100 bytes
//! history row   | branch u32 | teller u32 | account u32 | delta i64 | time u64 | filler | 50 bytes
//! ```

/// Bytes of a row of a branch, a teller or an account.
pub const BALANCE_BYTES: usize = 100;
/// Bytes of a row of history.
pub const HISTORY_BYTES: usize = 50;

const FILLER: u8 = b'x';

/// A balance row with nothing on it.
pub fn empty_balance(branch: u32) -> [u8; BALANCE_BYTES] {
    let mut row = [FILLER; BALANCE_BYTES];
    row[..8].copy_from_slice(&0i64.to_le_bytes());
    row[8..12].copy_from_slice(&branch.to_le_bytes());
    row
}

/// The balance; `None` if these bytes are too few to be such a row.
pub fn balance(row: &[u8]) -> Option<i64> {
    Some(i64::from_le_bytes(*row.first_chunk::<8>()?))
}

/// Replaces the balance.
///
/// # Panics
///
/// If these bytes are too few to be such a row.
pub fn set_balance(row: &mut [u8], balance: i64) {
    row[..8].copy_from_slice(&balance.to_le_bytes());
}

/// A row of history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Booking {
    /// The teller's branch.
    pub branch: u32,
    /// The writer.
    pub teller: u32,
    /// The rows it changed.
    pub account: u32,
    /// Cents.
    pub delta: i64,
}

impl Booking {
    /// The row of history; `time` is seconds since 1970.
    pub fn encode(&self, time: u64) -> [u8; HISTORY_BYTES] {
        let mut row = [FILLER; HISTORY_BYTES];
        row[0..4].copy_from_slice(&self.branch.to_le_bytes());
        row[4..8].copy_from_slice(&self.teller.to_le_bytes());
        row[8..12].copy_from_slice(&self.account.to_le_bytes());
        row[12..20].copy_from_slice(&self.delta.to_le_bytes());
        row[20..28].copy_from_slice(&time.to_le_bytes());
        row
    }

    /// Decodes a row of history; `None` if the bytes are too few.
    pub fn decode(row: &[u8]) -> Option<Booking> {
        let (branch, rest) = row.split_first_chunk()?;
        let (teller, rest) = rest.split_first_chunk()?;
        let (account, rest) = rest.split_first_chunk()?;
        let (delta, _) = rest.split_first_chunk()?;
        Some(Booking {
            branch: u32::from_le_bytes(*branch),
            teller: u32::from_le_bytes(*teller),
            account: u32::from_le_bytes(*account),
            delta: i64::from_le_bytes(*delta),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_booking_comes_back_from_its_row() {
        let booking = Booking {
            branch: 1,
            teller: 7,
            account: 99,
            delta: -5,
        };
        assert_eq!(Booking::decode(&booking.encode(12)), Some(booking));
        assert_eq!(Booking::decode(&[0; 19]), None);
    }
}
