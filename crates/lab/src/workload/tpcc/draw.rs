//! Random choices of the benchmark: non-uniform numbers, last names, strings.

use crate::random::Random;

/// The constant C of last names while loading.
pub const C_LOAD: u64 = 157;
/// The same while running. The benchmark requires a difference of 65 to 119, except 96 and 112.
pub const C_RUN: u64 = 223;
/// The constant C of customers.
const C_CUSTOMER: u64 = 259;
/// The constant C of items.
const C_ITEM: u64 = 7_911;

const _: () = assert!(matches!(C_RUN - C_LOAD, 65..=95 | 97..=111 | 113..=119));

/// The number of a customer, 1..`customers`.
pub fn customer(random: &mut Random, customers: u32) -> u32 {
    random.non_uniform(1_023, 1, u64::from(customers), C_CUSTOMER) as u32
}

/// The number of an item, 1..`items`.
pub fn item(random: &mut Random, items: u32) -> u32 {
    random.non_uniform(8_191, 1, u64::from(items), C_ITEM) as u32
}

/// The number of a last name, 0..`names` - 1; `c` is [`C_LOAD`] or [`C_RUN`].
pub fn name(random: &mut Random, names: u32, c: u64) -> u32 {
    random.non_uniform(255, 0, u64::from(names - 1), c) as u32
}

const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];

/// The last name of this number, 0..999: a syllable for each of its three digits.
///
/// # Panics
///
/// If the number has more digits.
pub fn last_name(number: u32) -> String {
    let syllable = |digit: u32| SYLLABLES[digit as usize];
    [number / 100, number / 10 % 10, number % 10]
        .map(syllable)
        .concat()
}

/// Another warehouse than `home`, uniform; `home` if there is no other.
pub fn other_warehouse(random: &mut Random, home: u32, warehouses: u32) -> u32 {
    if warehouses == 1 {
        return home;
    }
    // Uniform among the others: one fewer to draw from, then step over the own.
    let other = random.uniform(1, u64::from(warehouses - 1)) as u32;
    other + u32::from(other >= home)
}

/// a-string of U(low, high) letters and digits.
pub fn letters_and_digits(random: &mut Random, low: usize, high: usize) -> Vec<u8> {
    let mut text = vec![0; random.uniform(low as u64, high as u64) as usize];
    random.fill_alphanumeric(&mut text);
    text
}

/// n-string of this many digits.
pub fn digits(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count)
        .map(|_| b'0' + random.uniform(0, 9) as u8)
        .collect()
}

/// Two capital letters.
pub fn state(random: &mut Random) -> Vec<u8> {
    (0..2).map(|_| b'A' + random.uniform(0, 25) as u8).collect()
}

/// Four random digits and five ones.
pub fn zip(random: &mut Random) -> Vec<u8> {
    let mut zip = digits(random, 4);
    zip.extend_from_slice(b"11111");
    zip
}

/// The mark of a brand in the data of an item and of its stock.
pub const ORIGINAL: &[u8] = b"ORIGINAL";

/// Data of an item or of stock: ten of a hundred contain [`ORIGINAL`].
pub fn data(random: &mut Random) -> Vec<u8> {
    let mut data = letters_and_digits(random, 26, 50);
    if random.percent(10) {
        let at = random.uniform(0, (data.len() - ORIGINAL.len()) as u64) as usize;
        data[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
    }
    data
}

/// True if they contain [`ORIGINAL`].
pub fn is_original(data: &[u8]) -> bool {
    data.windows(ORIGINAL.len()).any(|part| part == ORIGINAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shares of all draws that fall to the `top` commonest of `count` values.
    fn share(count: usize, top: usize, mut draw: impl FnMut(&mut Random) -> usize) -> f64 {
        // Many, so that chance alone makes none of 100,000 values common.
        const DRAWS: u32 = 2_000_000;
        let mut random = Random::seeded(&[5]);
        let mut counts = vec![0u32; count];
        (0..DRAWS).for_each(|_| counts[draw(&mut random)] += 1);
        counts.sort_unstable();
        let common: u32 = counts.iter().rev().take(top).sum();
        f64::from(common) / f64::from(DRAWS)
    }

    fn assert_near(share: f64, expected: f64) {
        assert!((share - expected).abs() < 0.02, "{share}, not {expected}");
    }

    #[test]
    fn popular_items_customers_and_names_are_as_popular_as_the_benchmark_makes_them() {
        let item = |random: &mut Random| item(random, 100_000) as usize - 1;
        assert_near(share(100_000, 20_000, item), 0.85);
        assert_near(share(100_000, 1_000, item), 0.31);
        let customer = |random: &mut Random| customer(random, 3_000) as usize - 1;
        assert_near(share(3_000, 600, customer), 0.79);
        assert_near(share(3_000, 30, customer), 0.22);
        let name = |random: &mut Random| name(random, 1_000, C_RUN) as usize;
        assert_near(share(1_000, 200, name), 0.73);
    }

    #[test]
    fn numbers_stay_in_their_bounds_at_every_scale() {
        let mut random = Random::seeded(&[6]);
        for scale in [1, 2, 30, 100, 3_000] {
            for _ in 0..2_000 {
                assert!((1..=scale).contains(&customer(&mut random, scale)));
                assert!((1..=scale).contains(&item(&mut random, scale)));
                assert!(name(&mut random, scale.min(1_000), C_RUN) < scale);
            }
        }
    }

    #[test]
    fn last_names_are_three_syllables() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(999), "EINGEINGEING");
    }

    #[test]
    fn another_warehouse_is_any_but_the_own() {
        let mut random = Random::seeded(&[7]);
        let mut counts = [0u32; 4];
        for _ in 0..9_000 {
            counts[other_warehouse(&mut random, 2, 4) as usize - 1] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!(
            [0, 2, 3]
                .iter()
                .all(|&other: &usize| (2_800..3_200).contains(&counts[other]))
        );
        assert_eq!(other_warehouse(&mut random, 1, 1), 1);
    }

    #[test]
    fn a_tenth_of_data_is_original_and_strings_are_as_long_as_asked() {
        let mut random = Random::seeded(&[8]);
        let original = (0..20_000).filter(|_| {
            let data = data(&mut random);
            assert!((26..=50).contains(&data.len()));
            is_original(&data)
        });
        let original = original.count();
        assert!((1_850..2_150).contains(&original), "{original}");
        let zip = zip(&mut random);
        assert!(zip.len() == 9 && zip.ends_with(b"11111"));
        assert!(digits(&mut random, 16).iter().all(u8::is_ascii_digit));
    }
}
