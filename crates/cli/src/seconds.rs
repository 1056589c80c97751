//! Seconds on the command line.

/// A number of seconds, of a day at most.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=86_400.0).contains(&value) => Ok(value),
        _ => Err("give a number of seconds from 0 to 86400, such as 0.5".to_owned()),
    }
}
