//! Protocol: a request is a line of words, an answer is a line of JSON.
//!
//! ```text
//! > foxton 1 picture
//! < {"foxton":1,"picture":{"process":4711, ...}}
//! > make coffee
//! < {"foxton":1,"error":"..."}                       and the connection is closed
//! ```
//!
//! The number is the version of the protocol. Within a version fields are added and never removed.

use serde::{Deserialize, Serialize};

use crate::status::Status;

/// The version of this implementation.
const VERSION: u32 = 1;

/// Maximum length of a request in bytes, including its line end.
pub(super) const REQUEST_BYTES: usize = 256;

/// The request for the status.
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

/// Checks that `line`, without its end, requests the status. An error is a message for the client.
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
    fn one_line_is_a_request_and_all_others_get_advice() {
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
