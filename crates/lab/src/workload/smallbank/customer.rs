//! Customers: their names, their initial balances, and the choice of a transaction's customer.

use super::Smallbank;
use crate::random::{Random, normal::CutNormal};

/// Bytes of a name.
pub const NAME_BYTES: usize = 64;
/// Customers that are hot, if any are.
pub const HOT: u32 = 100;
const HOT_PERCENT: u32 = 90;

/// The initial balance of an account, in cents: a normal distribution, cut at two deviations.
const INITIAL: CutNormal = CutNormal {
    mean: 3_000_000.0,
    deviation: 1_000_000.0,
    low: 1_000_000.0,
    high: 5_000_000.0,
};

/// A customer's name: the number in 64 digits.
pub fn name(customer: u32) -> String {
    format!("{customer:0NAME_BYTES$}")
}

/// Cents in savings and in checking at the beginning.
pub fn initial(seed: u64, customer: u32) -> [i64; 2] {
    let name = u64::from_be_bytes(*b"smallbnk");
    let mut random = Random::seeded(&[seed, name, u64::from(customer)]);
    std::array::from_fn(|_| INITIAL.draw(&mut random).round() as i64)
}

/// Draws a customer.
pub fn one(random: &mut Random, bank: &Smallbank) -> u32 {
    let hot = bank.hotspot && random.percent(HOT_PERCENT);
    let among = if hot {
        bank.customers.min(HOT)
    } else {
        bank.customers
    };
    random.uniform(1, u64::from(among)) as u32
}

/// Draws two customers, one other than the other.
///
/// # Panics
///
/// If there is one customer only.
pub fn two(random: &mut Random, bank: &Smallbank) -> [u32; 2] {
    assert!(
        bank.customers > 1,
        "there is one customer: no other to pay to"
    );
    let first = one(random, bank);
    loop {
        let second = one(random, bank);
        if second != first {
            return [first, second];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bank(customers: u32, hotspot: bool) -> Smallbank {
        Smallbank {
            customers,
            hotspot,
            seed: 1,
        }
    }

    #[test]
    fn nine_of_ten_and_a_little_are_hot_where_some_are() {
        let mut random = Random::seeded(&[1]);
        let mut share = |hotspot| {
            let bank = bank(1_000, hotspot);
            (0..20_000)
                .filter(|_| one(&mut random, &bank) <= HOT)
                .count()
        };
        // 0.9 + 0.1 · 100 / 1,000, and 100 / 1,000.
        assert!((18_000..18_400).contains(&share(true)));
        assert!((1_850..2_150).contains(&share(false)));
    }

    #[test]
    fn two_customers_are_never_one() {
        let mut random = Random::seeded(&[2]);
        for _ in 0..1_000 {
            let [first, second] = two(&mut random, &bank(2, true));
            assert_eq!(first + second, 3);
        }
    }

    #[test]
    fn everybody_begins_with_some_ten_to_fifty_thousand() {
        for customer in 1..1_000 {
            for cents in initial(1, customer) {
                assert!((1_000_000..=5_000_000).contains(&cents));
            }
        }
        assert_ne!(initial(1, 1), initial(1, 2));
        assert_eq!(name(12).len(), NAME_BYTES);
        assert!(name(12).ends_with("0012"));
    }
}
