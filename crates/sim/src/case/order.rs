//! Orders of steps: all orders that keep each transaction's own.

use crate::ledger::mix;

/// Returns the number of orders of transactions of these lengths.
pub fn count(lengths: &[usize]) -> u64 {
    let (mut count, mut before) = (1_u64, 0);
    for &length in lengths {
        // Positions for the steps of this one among all so far.
        for step in 1..=length as u64 {
            before += 1;
            count = count * before / step;
        }
    }
    count
}

/// Calls `take` with every order: a list that says whose step is next.
pub fn each(lengths: &[usize], take: &mut impl FnMut(&[usize])) {
    fn go(left: &mut [usize], order: &mut Vec<usize>, take: &mut impl FnMut(&[usize])) {
        if left.iter().all(|&steps| steps == 0) {
            return take(order);
        }
        for session in 0..left.len() {
            if left[session] > 0 {
                left[session] -= 1;
                order.push(session);
                go(left, order, take);
                order.pop();
                left[session] += 1;
            }
        }
    }
    go(&mut lengths.to_vec(), &mut Vec::new(), take);
}

/// Calls `take` with `samples` orders, drawn from `seed`.
pub fn sample(lengths: &[usize], samples: u64, seed: u64, take: &mut impl FnMut(&[usize])) {
    let mut random = mix(seed);
    let steps = lengths.iter().enumerate();
    let mut order: Vec<usize> = steps
        .flat_map(|(session, &length)| std::iter::repeat_n(session, length))
        .collect();
    for _ in 0..samples {
        for end in (1..order.len()).rev() {
            random = mix(random);
            order.swap(end, (random % (end as u64 + 1)) as usize);
        }
        take(&order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_are_as_many_orders_as_counted_and_each_is_another() {
        for lengths in [&[3, 3][..], &[4, 4], &[2, 3, 2], &[5]] {
            let mut orders = BTreeSet::new();
            each(lengths, &mut |order| {
                assert!(orders.insert(order.to_vec()));
            });
            assert_eq!(orders.len() as u64, count(lengths), "{lengths:?}");
            sample(lengths, 50, 7, &mut |order| assert!(orders.contains(order)));
        }
        assert_eq!(count(&[5, 4, 5]), 252_252);
    }
}
