//! Requests and answers as bytes: a line of words asks, a line of JSON answers.
//!
//! ```text
//! > foxton 1 picture
//! < {"foxton":1,"picture":{"process":4711, ...}}
//! > make coffee
//! < {"foxton":1,"error":"..."}                       and the connection is closed
//! ```
//!
//! The number is the protocol's version. Within a version fields are added and never taken away.

use serde::{Deserialize, Serialize};

use crate::status::Status;

/// The version spoken here.
const VERSION: u32 = 1;

/// Bytes of a request, its line end included.
pub(super) const REQUEST_BYTES: usize = 256;

/// What asks for a picture.
pub(super) const ASK: &[u8] = b"foxton 1 picture\n";

/// One line of answer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    /// The version.
    pub(super) foxton: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) picture: Option<Status>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl Answer {
    pub(super) fn status(picture: Status) -> Answer {
        Answer {
            foxton: VERSION,
            picture: Some(picture),
            error: None,
        }
    }

    pub(super) fn error(what: &str) -> Answer {
        Answer {
            foxton: VERSION,
            picture: None,
            error: Some(what.to_owned()),
        }
    }

    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("text and numbers can always be written");
        line.push(b'\n');
        line
    }
}

/// Whether `line`, without its end, asks for a picture; or what is wrong with it, for who sent it.
pub(super) fn check(line: &[u8]) -> Result<(), &'static str> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    match words[..] {
        [b"foxton", b"1", b"picture"] => Ok(()),
        [b"foxton", b"1", _] => Err("version 1 knows one request: picture"),
        [b"foxton", ..] => Err("this end speaks version 1: foxton 1 picture"),
        _ => Err("ask by a line such as: foxton 1 picture"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_asks_and_everything_else_is_told_what_to_say() {
        assert!(check(&ASK[..ASK.len() - 1]).is_ok());
        assert!(check(b"foxton 1 picture\r").is_ok());
        for garbage in [
            &b""[..],
            b"foxton",
            b"foxton 2 picture",
            b"foxton 1 everything",
            b"GET / HTTP/1.1",
            b"\xff\xfe\0\0",
            b"foxton  1 picture",
        ] {
            assert!(check(garbage).unwrap_err().contains("picture"));
        }
    }

    #[test]
    fn an_answer_is_one_line() {
        let picture = Status {
            database: "two\nlines".into(),
            ..Status::default()
        };
        for answer in [Answer::status(picture), Answer::error("no\nway")] {
            let line = answer.line();
            assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
            let read: Answer = serde_json::from_slice(&line).unwrap();
            assert_eq!((read.picture, read.error), (answer.picture, answer.error));
        }
    }
}
