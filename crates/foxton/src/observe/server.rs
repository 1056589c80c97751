//! Server thread: answers the clients that observe a database.
//!
//! It is one thread with one `poll` and non-blocking sockets. The cost of a client is bounded by
//! the number of clients, the length of a request, one answer in flight per client, and a shared
//! status. Clients share a status if they ask within [`FRESH`] of its capture, or within as long as
//! the capture took. So however often clients ask, the thread spends at most half of its time on
//! capturing. A client that asks during a capture waits for at most one more. A client that does
//! not read gets no second answer and is disconnected after [`PATIENCE`].
//!
//! # Invariants
//!
//! * I1  The thread holds the engine only during a capture, so it keeps no database open.
//! * I2  Closing the database joins the thread, so the socket is gone when `drop` returns. This
//!   thread runs no waker and no callback, so it never closes the database itself.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::protocol::{self, Answer, REQUEST_BYTES};
use super::socket_path::{self, ListeningSocket};
use crate::engine::{Engine, own_thread};
use crate::observe::capture;

/// Maximum number of clients. One more replaces the client that has been silent for longest.
const CLIENTS: usize = 32;
/// Minimum time that a status is reused.
const FRESH: Duration = Duration::from_millis(50);
/// Maximum time that an answer may stay unread.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time during which no client is accepted after the system had no resources for one more.
const DEAF: Duration = Duration::from_secs(1);

/// A running server thread. Dropping it ends the thread and removes the socket.
#[derive(Debug)]
pub(crate) struct Server {
    thread: Option<JoinHandle<()>>,
    /// Closing it wakes the thread.
    stop: Option<UnixStream>,
}

impl Server {
    /// Starts serving `engine` at a socket.
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
        if let Some(thread) = self.thread.take() {
            own_thread::join(thread); // I2
        }
    }
}

/// Binds the socket of a database.
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
    /// In order of arrival: of equally silent clients the first is disconnected.
    clients: Vec<Client>,
    /// The last status as sent, and until when it is reused.
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
    /// The answer in flight, and how many bytes of it are sent.
    answer: Option<(Arc<[u8]>, usize)>,
    /// True once the client has got an error; its requests are no longer read.
    leaving: bool,
    /// Time of its last activity.
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

    /// Sleeps until a socket is ready; returns `None` when the thread must end.
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
        // Only unread answers and the pause after a failed accept need a timeout.
        let hurried =
            self.deaf_until.is_some() || self.clients.iter().any(|client| client.answer.is_some());
        let pause = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        match poll(&mut fds, hurried.then_some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // No resources now. A stopped server is noticed next time.
            Err(rustix::io::Errno::NOMEM | rustix::io::Errno::AGAIN) => {
                thread::sleep(DEAF);
                return Some(PollResult {
                    newcomers: false,
                    clients: vec![false; self.clients.len()],
                });
            }
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
                    // No resources: new clients wait in the backlog, and this thread does not spin.
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

    /// Does what is possible for one client without waiting. After an error the client must be
    /// disconnected.
    fn attend(&mut self, at: usize, now: Instant) -> io::Result<()> {
        if self.clients[at].answer.is_none() {
            self.clients[at].read(now)?;
        }
        // Several requests may have arrived: answer as many as can be sent.
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

    /// Returns the answer with the status: the last one, if it is fresh.
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

/// Result of `poll`.
struct PollResult {
    newcomers: bool,
    clients: Vec<bool>,
}

impl Client {
    /// Reads input, up to the maximum length of a request.
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

    /// Removes the first complete line of the input and checks it.
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

    /// Sends as much of the answer as the socket accepts.
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

/// Ignores errors that only mean: later.
fn passing(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}
