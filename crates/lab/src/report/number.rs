//! Numbers in a form for people.

/// Groups thousands: `1,234,567`.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value <= -0.5 {
        format!("-{text}")
    } else {
        text
    }
}

/// Three significant digits and a letter: `1.23 M`, `456 k`, `78`.
pub fn short(value: f64) -> String {
    for (unit, letter) in [(1e9, " G"), (1e6, " M"), (1e3, " k")] {
        if value.abs() >= unit {
            return format!("{}{letter}", significant(value / unit));
        }
    }
    significant(value)
}

/// An estimate, so that it cannot be taken for a count: `about 270,000`, with two significant
/// digits.
pub fn about(estimate: u64) -> String {
    format!("about {}", grouped(rounded(estimate) as f64))
}

/// An estimate with two significant digits.
pub fn rounded(estimate: u64) -> u64 {
    let unit = 10_u64.pow(estimate.checked_ilog10().unwrap_or(0).saturating_sub(1));
    // The largest numbers have no rounded one above them.
    (estimate.saturating_add(unit / 2) / unit).saturating_mul(unit)
}

/// A duration in microseconds with a unit that suits it: `950 ns`, `12.3 µs`, `4.56 ms`, `1.2 s`.
pub fn duration_us(micros: f64) -> String {
    for (unit, name) in [(1e6, " s"), (1e3, " ms"), (1.0, " µs")] {
        if micros >= unit {
            return format!("{}{name}", significant(micros / unit));
        }
    }
    format!("{} ns", significant(micros * 1e3))
}

/// Bytes in binary units.
pub fn bytes(count: u64) -> String {
    let value = count as f64;
    for (shift, name) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let unit = (1u64 << shift) as f64;
        if value >= unit {
            return format!("{} {name}", significant(value / unit));
        }
    }
    format!("{count} B")
}

fn significant(value: f64) -> String {
    let text = match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_rounded_and_says_so() {
        for (estimate, words) in [
            (0, "about 0"),
            (7, "about 7"),
            (99, "about 99"),
            (995, "about 1,000"),
            (276_732, "about 280,000"),
            (271_746, "about 270,000"),
        ] {
            assert_eq!(about(estimate), words);
        }
        rounded(u64::MAX);
    }

    #[test]
    fn numbers_keep_three_digits_and_their_unit() {
        assert_eq!(grouped(1_234_567.4), "1,234,567");
        assert_eq!(grouped(999.0), "999");
        assert_eq!(short(456_000.0), "456 k");
        assert_eq!(short(0.0), "0");
        assert_eq!(short(1_500_000.0), "1.5 M");
        assert_eq!(duration_us(0.95), "950 ns");
        assert_eq!(duration_us(4_560.0), "4.56 ms");
        assert_eq!(bytes(512 << 20), "512 MiB");
        assert_eq!(bytes(100), "100 B");
    }
}
