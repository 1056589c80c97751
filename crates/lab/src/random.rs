//! Random numbers that can be reproduced.
//!
//! Every client has a generator of its own, seeded from the run's seed, the workload and the
//! client's number; every row has one seeded from the load's seed, its table and its key. So a
//! load can be done in parallel, repeated, and recomputed row by row by a checker, and no two
//! threads ever share a generator.
//!
//! The generator is xoshiro256++ (Blackman and Vigna), seeded through splitmix64: small, quick,
//! and good enough for choosing rows. It is not for secrets.

/// Ranks by Zipf's law, and choices made of them.
pub mod zipfian;

/// Numbers by Pareto's rule.
pub mod pareto;

/// Numbers about a mean.
pub mod normal;

/// A small generator of random numbers: the same seed gives the same numbers.
#[derive(Debug, Clone)]
pub struct Random([u64; 4]);

const ALPHANUMERIC: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

impl Random {
    /// The generator of `words`, in order: for example (load seed, table, key).
    pub fn seeded(words: &[u64]) -> Random {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for &word in words {
            state = splitmix(&mut (state ^ word));
        }
        Random(std::array::from_fn(|_| splitmix(&mut state)))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// U(low, high): uniform, both ends included, without modulo bias.
    ///
    /// # Panics
    ///
    /// If `low > high`.
    pub fn uniform(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "U({low}, {high}) is empty");
        let span = high - low;
        if span == u64::MAX {
            return self.bits();
        }
        let count = span + 1;
        // Lemire's multiplication: the high word is uniform once the few low words that would be
        // counted twice are drawn again.
        loop {
            let product = u128::from(self.bits()) * u128::from(count);
            if product as u64 >= count.wrapping_neg() % count {
                return low + (product >> 64) as u64;
            }
        }
    }

    /// True with a probability of `percent` in a hundred.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.uniform(1, 100) <= u64::from(percent)
    }

    /// A number between 0 and 1, both excluded.
    pub fn unit(&mut self) -> f64 {
        // 52 bits and a half, so that the smallest is above 0 and the largest below 1.
        ((self.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    /// Overwrites `bytes` with random ones.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for eight in bytes.chunks_mut(8) {
            eight.copy_from_slice(&self.bits().to_le_bytes()[..eight.len()]);
        }
    }

    /// NU(a, low, high, c): a choice of low..=high that favours numbers with many bits of `a` set,
    /// so that some are far hotter than others without being neighbours.
    ///
    /// # Panics
    ///
    /// If `low > high`.
    pub fn non_uniform(&mut self, a: u64, low: u64, high: u64, c: u64) -> u64 {
        let both = self.uniform(0, a) | self.uniform(low, high);
        (both + c) % (high - low + 1) + low
    }

    /// The numbers 1 ..= `count` in a random order.
    pub fn permutation(&mut self, count: u32) -> Vec<u32> {
        let mut numbers: Vec<u32> = (1..=count).collect();
        self.shuffle(&mut numbers);
        numbers
    }

    /// Shuffles `all`, each order equally likely.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.uniform(0, at as u64) as usize);
        }
    }

    /// An index into `weights`, drawn with a probability in proportion to its weight.
    ///
    /// # Panics
    ///
    /// If no weight is above 0.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let all = weights.iter().map(|&weight| u64::from(weight)).sum();
        let mut left = self.uniform(1, all);
        let here = |&weight: &u32| {
            let is = left <= u64::from(weight);
            left = left.saturating_sub(u64::from(weight));
            is
        };
        let place = weights.iter().position(here);
        place.expect("the weights add up to what was drawn from")
    }

    /// Moves `count` of `all` to the front in random order, each subset of that size equally
    /// likely.
    ///
    /// # Panics
    ///
    /// If `count` is more than the length.
    pub fn choose<'a, T>(&mut self, count: usize, all: &'a mut [T]) -> &'a mut [T] {
        for at in 0..count {
            let last = all.len() as u64 - 1;
            all.swap(at, self.uniform(at as u64, last) as usize);
        }
        &mut all[..count]
    }

    /// Overwrites `text` with random digits (the n-string of the workloads).
    pub fn fill_digits(&mut self, text: &mut [u8]) {
        for four in text.chunks_mut(4) {
            let mut bits = self.bits();
            for byte in four {
                *byte = b'0' + (((bits & 0xffff) * 10) >> 16) as u8;
                bits >>= 16;
            }
        }
    }

    /// Overwrites `text` with random capital letters.
    pub fn fill_capitals(&mut self, text: &mut [u8]) {
        text.fill_with(|| b'A' + self.uniform(0, 25) as u8);
    }

    /// Overwrites `text` with random letters and digits (the a-string of the workloads).
    pub fn fill_alphanumeric(&mut self, text: &mut [u8]) {
        for four in text.chunks_mut(4) {
            let mut bits = self.bits();
            for byte in four {
                *byte = ALPHANUMERIC[((bits & 0xffff) as usize * ALPHANUMERIC.len()) >> 16];
                bits >>= 16;
            }
        }
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_numbers_and_another_does_not() {
        let draw = |words: &[u64]| {
            let mut random = Random::seeded(words);
            [random.bits(), random.bits()]
        };
        assert_eq!(draw(&[1, 2]), draw(&[1, 2]));
        assert_ne!(draw(&[1, 2]), draw(&[2, 1]));
        assert_ne!(draw(&[1]), draw(&[1, 0]));
    }

    #[test]
    fn a_uniform_draw_reaches_both_ends_about_equally() {
        let mut random = Random::seeded(&[7]);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[random.uniform(3, 12) as usize - 3] += 1;
        }
        assert!(
            counts.iter().all(|&count| (9_500..10_500).contains(&count)),
            "{counts:?}"
        );
        assert_eq!(random.uniform(5, 5), 5);
    }

    #[test]
    fn a_unit_lies_between_its_ends_and_about_anywhere() {
        let mut random = Random::seeded(&[4]);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            let unit = random.unit();
            assert!(0.0 < unit && unit < 1.0);
            counts[(unit * 10.0) as usize] += 1;
        }
        assert!(
            counts.iter().all(|&count| (9_500..10_500).contains(&count)),
            "{counts:?}"
        );
    }

    #[test]
    fn every_byte_of_a_random_string_may_have_any_value() {
        let mut bytes = [0u8; 100_003];
        Random::seeded(&[6]).fill(&mut bytes);
        let mut counts = [0u32; 256];
        bytes
            .iter()
            .for_each(|&byte| counts[usize::from(byte)] += 1);
        assert!(
            counts.iter().all(|&count| (300..500).contains(&count)),
            "{counts:?}"
        );
        assert!(bytes[100_000..].iter().any(|&byte| byte != 0));
    }

    #[test]
    fn a_string_of_digits_has_each_about_equally() {
        let mut text = [0u8; 100_001];
        Random::seeded(&[8]).fill_digits(&mut text);
        let mut counts = [0u32; 10];
        text.iter()
            .for_each(|&digit| counts[usize::from(digit - b'0')] += 1);
        assert!(
            counts.iter().all(|&count| (9_500..10_500).contains(&count)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_string_has_letters_and_digits_only() {
        let mut text = [0u8; 178];
        let mut random = Random::seeded(&[1]);
        random.fill_alphanumeric(&mut text);
        assert!(text.iter().all(u8::is_ascii_alphanumeric));
        random.fill_digits(&mut text);
        assert!(text.iter().all(u8::is_ascii_digit));
        random.fill_capitals(&mut text);
        assert!(text.iter().all(u8::is_ascii_uppercase));
    }

    #[test]
    fn a_permutation_has_every_number_once() {
        let mut numbers = Random::seeded(&[7]).permutation(1_000);
        assert_ne!(numbers, (1..=1_000).collect::<Vec<_>>());
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=1_000).collect::<Vec<_>>());
    }

    #[test]
    fn every_order_is_as_likely() {
        let (mut random, mut counts) = (Random::seeded(&[3]), std::collections::BTreeMap::new());
        for _ in 0..60_000 {
            let mut three = [1, 2, 3];
            random.shuffle(&mut three);
            *counts.entry(three).or_insert(0) += 1;
        }
        let fair = |&count: &i32| (9_500..10_500).contains(&count);
        assert!(counts.len() == 6 && counts.values().all(fair), "{counts:?}");
    }

    #[test]
    fn a_place_is_drawn_as_often_as_its_weight_says_and_never_without_one() {
        let (mut random, mut counts) = (Random::seeded(&[2]), [0u32; 4]);
        for _ in 0..100_000 {
            counts[random.weighted(&[0, 3, 0, 7])] += 1;
        }
        assert_eq!((counts[0], counts[2]), (0, 0));
        assert!((29_000..31_000).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn every_subset_is_chosen_about_equally_often() {
        let mut random = Random::seeded(&[5]);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..60_000 {
            let mut types = [1, 2, 3, 4];
            let chosen = random.choose(2, &mut types);
            chosen.sort_unstable();
            *counts.entry((chosen[0], chosen[1])).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        let fair = |&count: &i32| (9_500..10_500).contains(&count);
        assert!(counts.values().all(fair), "{counts:?}");
    }
}
