//! The loaded contents of the tables: each subscriber's rows, drawn from their own seeds, so that
//! the checks can draw them again.

use super::{
    START_TIMES, Shape, TYPES,
    row::{
        self, ACCESS_INFO_BYTES, BITS, BYTE2, CALL_FORWARDING_BYTES, END_TIME, HEX, MSC_LOCATION,
        NUMBER_BYTES, NUMBERX, SPECIAL_FACILITY_BYTES, SUBSCRIBER_BYTES, VLR_LOCATION,
    },
};
use crate::random::Random;

const ACTIVE_PERCENT: u32 = 85;
const LONGEST_FORWARDING: u64 = 8;

/// The table of a row, for its seed.
#[derive(Debug, Clone, Copy)]
#[repr(u64)]
enum Of {
    Subscriber,
    AccessInfo,
    SpecialFacility,
}

/// A special facility, with the call forwardings that refer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facility {
    /// Which of the subscriber's.
    pub sf_type: u8,
    /// Its value.
    pub row: Vec<u8>,
    /// Start times and values, by start time.
    pub forwardings: Vec<(u8, Vec<u8>)>,
}

fn generator(shape: &Shape, of: Of, subscriber: u32) -> Random {
    let workload = u64::from_be_bytes(*b"____tatp");
    Random::seeded(&[shape.seed, workload, of as u64, u64::from(subscriber)])
}

/// The value of a subscriber.
pub fn subscriber(shape: &Shape, id: u32) -> Vec<u8> {
    let mut random = generator(shape, Of::Subscriber, id);
    let mut row = vec![0; SUBSCRIBER_BYTES];
    row[..NUMBER_BYTES].copy_from_slice(&row::number_of(id));
    for (bytes, largest) in [(BITS, 1), (HEX, 15), (BYTE2, 255)] {
        row[bytes].fill_with(|| random.uniform(0, largest) as u8);
    }
    for bytes in [MSC_LOCATION, VLR_LOCATION] {
        row[bytes].copy_from_slice(&location(&mut random).to_le_bytes());
    }
    if shape.pad {
        row::pad_subscriber(&mut row);
    }
    row
}

/// A place where a subscriber may be.
pub fn location(random: &mut Random) -> u32 {
    random.uniform(1, u64::from(u32::MAX)) as u32
}

/// The access infos of a subscriber: types and values, by type.
pub fn access_infos(shape: &Shape, subscriber: u32) -> Vec<(u8, Vec<u8>)> {
    let mut random = generator(shape, Of::AccessInfo, subscriber);
    let mut types = TYPES;
    let of_type = |random: &mut Random| {
        let mut row = vec![0; ACCESS_INFO_BYTES];
        row[..2].fill_with(|| random.uniform(0, 255) as u8);
        random.fill_capitals(&mut row[2..]);
        if shape.pad {
            row::pad(&mut row, 5);
        }
        row
    };
    let count = random.uniform(1, 4) as usize;
    let chosen = random.choose(count, &mut types);
    chosen.sort_unstable();
    chosen
        .iter()
        .map(|&ai_type| (ai_type, of_type(&mut random)))
        .collect()
}

/// The special facilities of a subscriber and their call forwardings, by type.
pub fn facilities(shape: &Shape, subscriber: u32) -> Vec<Facility> {
    let mut random = generator(shape, Of::SpecialFacility, subscriber);
    let mut types = TYPES;
    let count = random.uniform(1, 4) as usize;
    let chosen = random.choose(count, &mut types);
    chosen.sort_unstable();
    chosen
        .iter()
        .map(|&sf_type| facility(shape, sf_type, &mut random))
        .collect()
}

fn facility(shape: &Shape, sf_type: u8, random: &mut Random) -> Facility {
    let mut row = vec![0; SPECIAL_FACILITY_BYTES];
    row[row::IS_ACTIVE] = u8::from(random.percent(ACTIVE_PERCENT));
    row[1..3].fill_with(|| random.uniform(0, 255) as u8);
    random.fill_capitals(&mut row[3..]);
    if shape.pad {
        row::pad(&mut row, 5);
    }
    let mut times = START_TIMES;
    let count = random.uniform(0, 3) as usize;
    let chosen = random.choose(count, &mut times);
    chosen.sort_unstable();
    let forwarding = |&start_time: &u8| {
        let end_time = start_time + random.uniform(1, LONGEST_FORWARDING) as u8;
        let mut number = [0; NUMBER_BYTES];
        random.fill_digits(&mut number);
        (start_time, forwarding(shape, end_time, &number))
    };
    Facility {
        sf_type,
        row,
        forwardings: chosen.iter().map(forwarding).collect(),
    }
}

/// The value of a call forwarding.
pub fn forwarding(shape: &Shape, end_time: u8, number: &row::Number) -> Vec<u8> {
    let mut row = vec![0; CALL_FORWARDING_BYTES];
    row[END_TIME] = end_time;
    row[NUMBERX].copy_from_slice(number);
    if shape.pad {
        row::pad(&mut row, 6);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_has_as_many_rows_as_the_benchmark_expects_within_half_a_percent() {
        let shape = Shape {
            subscribers: 100_000,
            ..Shape::usual()
        };
        let (mut infos, mut all, mut active, mut forwardings) = (0, 0, 0, 0);
        let mut of_type = [0u32; 5];
        for id in 1..=shape.subscribers {
            for (ai_type, _) in access_infos(&shape, id) {
                of_type[usize::from(ai_type)] += 1;
                infos += 1;
            }
            for facility in facilities(&shape, id) {
                all += 1;
                active += u32::from(facility.row[row::IS_ACTIVE]);
                forwardings += facility.forwardings.len() as u32;
                for (start_time, row) in &facility.forwardings {
                    let length = row[END_TIME] - start_time;
                    assert!(START_TIMES.contains(start_time) && (1..=8).contains(&length));
                }
            }
        }
        let close = |found: u32, expected: f64| {
            let share = f64::from(found) / expected;
            assert!((share - 1.0).abs() < 0.005, "{found}, not {expected}");
        };
        close(infos, 250_000.0);
        close(all, 250_000.0);
        close(active, 250_000.0 * 0.85);
        close(forwardings, 375_000.0);
        assert_eq!(of_type[0], 0);
        let each = of_type[1..].iter();
        assert!(
            each.clone().all(|&count| count.abs_diff(62_500) < 625),
            "{of_type:?}"
        );
    }

    #[test]
    fn rows_have_their_sizes_padded_and_not() {
        let usual = Shape::usual();
        let padded = Shape { pad: true, ..usual };
        let sizes = |shape: &Shape| {
            let of = |id| facilities(shape, id).into_iter();
            let with = (1..).find_map(|id| of(id).find(|one| !one.forwardings.is_empty()));
            let facility = with.expect("some subscriber has one");
            [
                subscriber(shape, 1).len() + 4,
                access_infos(shape, 1)[0].1.len() + 5,
                facility.row.len() + 5,
                facility.forwardings[0].1.len() + 6,
            ]
        };
        assert_eq!(sizes(&usual), [57, 15, 13, 22]);
        assert_eq!(sizes(&padded), [100, 50, 50, 50]);
    }
}
