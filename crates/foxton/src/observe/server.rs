//! The thread that answers who looks into a database.
//!
//! One thread, one `poll`, sockets that never block. What a client costs is bounded: so many clients,
//! so many bytes of request, one answer under way, and a picture that all share if they ask within
//! [`FRESH`] of its being taken, or within as long as it took. So whoever asks, and however often, no
//! more than half of this thread's time is spent on pictures, and who comes while one is taken waits for
//! one more at most. A client that does not read gets no second answer and, after [`PATIENCE`], is gone.
//!
//! # Invariants
//!
//! * I1  The thread holds the engine only while it takes a picture: it keeps no database open.
//! * I2  Who closes the database joins the thread, so that the socket is gone when `drop` returns;
//!   unless it is this very thread that closes it.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::protocol::{self, Answer, REQUEST_BYTES};
use super::socket_path::{self, ListeningSocket};
use crate::engine::Engine;
use crate::observe::capture;

/// Clients at once. One more, and the one that has been silent for longest must go.
const CLIENTS: usize = 32;
/// How long a picture serves whoever asks, at least.
const FRESH: Duration = Duration::from_millis(50);
/// How long an answer may lie unread.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long nobody is let in after the system had no room for one more.
const DEAF: Duration = Duration::from_secs(1);

/// A running thread; it ends, and its socket goes, when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    thread: Option<JoinHandle<()>>,
    /// Closing it wakes the thread.
    stop: Option<UnixStream>,
}

impl Server {
    /// Answers for `engine` at a socket of its own.
    pub(crate) fn start(engine: &Arc<Engine>, bound: ListeningSocket) -> io::Result<Server> {
        let (stop, stopped) = UnixStream::pair()?;
        let state = ServerState {
            engine: Arc::downgrade(engine),
            bound,
            stopped,
            clients: Vec::new(),
            latest: None,
            deaf_until: None,
        };
        let thread = thread::Builder::new()
            .name("foxton-observe".into())
            .spawn(move || state.serve())?;
        Ok(Server {
            thread: Some(thread),
            stop: Some(stop),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join(); // I2. Had it panicked, nobody could do anything about it.
        }
    }
}

/// Where the socket of a database is to be.
pub(crate) fn bind(directory: Option<&Path>, at: Option<&Path>) -> io::Result<ListeningSocket> {
    match (at, directory) {
        (Some(path), _) => socket_path::bind(path),
        (None, Some(directory)) => socket_path::bind_beside(directory),
        (None, None) => Err(ErrorKind::NotADirectory.into()),
    }
}

struct ServerState {
    engine: Weak<Engine>,
    bound: ListeningSocket,
    stopped: UnixStream,
    /// In the order in which they came: of those that are equally silent, the first is let go.
    clients: Vec<Client>,
    /// The last picture, as it is sent, and until when it serves.
    latest: Option<(Instant, Arc<[u8]>)>,
    deaf_until: Option<Instant>,
}

impl Drop for ServerState {
    fn drop(&mut self) {
        self.bound.remove();
    }
}

/// One connection.
struct Client {
    stream: UnixStream,
    asked: Vec<u8>,
    /// The answer under way, and how much of it has gone.
    answer: Option<(Arc<[u8]>, usize)>,
    /// It has been told what was wrong, and is heard no more.
    leaving: bool,
    /// When it last did something.
    active: Instant,
}

impl ServerState {
    fn serve(mut self) {
        while let Some(ready) = self.wait() {
            let now = Instant::now();
            for at in (0..ready.clients.len()).rev() {
                if ready.clients[at] && self.attend(at, now).is_err() {
                    self.clients.remove(at);
                }
            }
            if ready.newcomers {
                self.let_in(now);
            }
            self.clients.retain(|client| {
                client.answer.is_none() || now.duration_since(client.active) < PATIENCE
            });
        }
    }

    /// Sleeps until somebody has something to say; `None` when it is time to end.
    fn wait(&mut self) -> Option<PollResult> {
        self.deaf_until = self.deaf_until.filter(|&until| Instant::now() < until);
        let newcomers = match self.deaf_until {
            None => PollFlags::IN,
            Some(_) => PollFlags::empty(),
        };
        let mut fds = vec![
            PollFd::new(&self.stopped, PollFlags::IN),
            PollFd::new(&self.bound.listener, newcomers),
        ];
        fds.extend(self.clients.iter().map(|client| {
            let wanted = match client.answer {
                Some(_) => PollFlags::OUT,
                None => PollFlags::IN,
            };
            PollFd::new(&client.stream, wanted)
        }));
        // Only those who do not read what they asked for, and the deaf time, need a clock.
        let hurried =
            self.deaf_until.is_some() || self.clients.iter().any(|client| client.answer.is_some());
        let pause = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        match poll(&mut fds, hurried.then_some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        (!ready[0]).then(|| PollResult {
            newcomers: ready[1],
            clients: ready[2..].to_vec(),
        })
    }

    fn let_in(&mut self, now: Instant) {
        loop {
            let stream = match self.bound.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => {
                    // No room: they wait outside, and we do not spin.
                    self.deaf_until = Some(now + DEAF);
                    return;
                }
            };
            if !socket_path::is_our_own(&stream) || stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.clients.len() == CLIENTS {
                let longest = (0..CLIENTS).min_by_key(|&at| self.clients[at].active);
                self.clients.remove(longest.expect("there are some"));
            }
            self.clients.push(Client {
                stream,
                asked: Vec::new(),
                answer: None,
                leaving: false,
                active: now,
            });
        }
    }

    /// Does what can be done for one client without waiting. An error: it is gone, or must go.
    fn attend(&mut self, at: usize, now: Instant) -> io::Result<()> {
        if self.clients[at].answer.is_none() {
            self.clients[at].read(now)?;
        }
        // More than one request may have come: as many as there is room for.
        loop {
            let client = &mut self.clients[at];
            client.write(now)?;
            if client.answer.is_some() {
                return Ok(());
            }
            let line = match client.next_request() {
                None => return Ok(()),
                Some(Ok(())) => self.line(now)?,
                Some(Err(what)) => {
                    client.leaving = true;
                    Answer::error(what).line().into()
                }
            };
            self.clients[at].answer = Some((line, 0));
        }
    }

    /// The answer that is a picture: the last one, if it is fresh.
    fn line(&mut self, now: Instant) -> io::Result<Arc<[u8]>> {
        if let Some((until, line)) = &self.latest
            && now < *until
        {
            return Ok(line.clone());
        }
        let engine = self.engine.upgrade().ok_or(ErrorKind::NotConnected)?;
        let began = Instant::now();
        let line: Arc<[u8]> = Answer::status(capture::status(&engine)).line().into();
        drop(engine); // I1
        let taken = Instant::now();
        self.latest = Some((taken + (taken - began).max(FRESH), line.clone()));
        Ok(line)
    }
}

/// What `poll` said.
struct PollResult {
    newcomers: bool,
    clients: Vec<bool>,
}

impl Client {
    /// Takes in what has come, as far as a request may be long.
    fn read(&mut self, now: Instant) -> io::Result<()> {
        let mut bytes = [0; REQUEST_BYTES];
        let room = REQUEST_BYTES - self.asked.len();
        if room == 0 {
            return Ok(());
        }
        match self.stream.read(&mut bytes[..room]) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.asked.extend_from_slice(&bytes[..count]);
                self.active = now;
                Ok(())
            }
            Err(error) => passing(error),
        }
    }

    /// The first whole line of what was asked, judged.
    fn next_request(&mut self) -> Option<Result<(), &'static str>> {
        let end = self.asked.iter().position(|&byte| byte == b'\n');
        match end {
            Some(end) => {
                let judged = protocol::check(&self.asked[..end]);
                self.asked.drain(..=end);
                Some(judged)
            }
            None if self.asked.len() == REQUEST_BYTES => {
                Some(Err("that is too long to be a request: foxton 1 picture"))
            }
            None => None,
        }
    }

    /// Sends as much of the answer as goes.
    fn write(&mut self, now: Instant) -> io::Result<()> {
        while let Some((line, sent)) = &mut self.answer {
            match self.stream.write(&line[*sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    *sent += count;
                    self.active = now;
                    if *sent == line.len() {
                        self.answer = None;
                        if self.leaving {
                            return Err(ErrorKind::InvalidData.into());
                        }
                    }
                }
                Err(error) => return passing(error),
            }
        }
        Ok(())
    }
}

/// Errors that only mean: later.
fn passing(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}
