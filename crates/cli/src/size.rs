//! Sizes of memory, as arguments of the command line.

/// Units and their bytes, the longest names first.
const UNITS: [(&str, usize); 4] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("B", 1),
];

/// Parses a number of bytes, with a unit or without: `64MiB`.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let with = |(unit, bytes): (&str, usize)| Some((text.strip_suffix(unit)?, bytes));
    let (number, bytes) = UNITS.into_iter().find_map(with).unwrap_or((text, 1));
    let number = number.trim_end().parse::<usize>().ok();
    let size = number.and_then(|number| number.checked_mul(bytes));
    let wrong =
        || format!("\"{text}\" is not a size; give a number with KiB, MiB or GiB, as in 64MiB");
    size.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_whole_number_with_a_unit_or_without() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("1 GiB", 1 << 30),
            ("3KiB", 3 << 10),
            ("17", 17),
            ("17B", 17),
        ] {
            assert_eq!(size(text), Ok(bytes));
        }
        for wrong in ["", "MiB", "64MB", "-1KiB", "99999999999GiB", "0.5GiB"] {
            assert!(size(wrong).unwrap_err().contains("64MiB"), "{wrong}");
        }
    }
}
