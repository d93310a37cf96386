//! Sessions: who logged in with which cookie. In memory, so a restart of the console ends them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::cookie::Cookie;

/// So many sessions at most; a further one ends the oldest.
const MOST: usize = 10_000;

#[derive(Debug)]
pub(super) struct Sessions {
    lifetime: Duration,
    /// By the hash of the cookie: a dump of the memory's map shows no cookie that works.
    held: Mutex<HashMap<[u8; 32], Session>>,
}

#[derive(Debug)]
struct Session {
    name: String,
    begun: Instant,
}

impl Sessions {
    pub(super) fn new(lifetime: Duration) -> Self {
        Self { lifetime, held: Mutex::default() }
    }

    pub(super) fn begin(&self, cookie: &Cookie, name: String, now: Instant) {
        let mut held = self.held.lock();
        if held.len() >= MOST {
            held.retain(|_, session| now.saturating_duration_since(session.begun) < self.lifetime);
        }
        if held.len() >= MOST {
            let oldest = held.iter().min_by_key(|(_, session)| session.begun).map(|(key, _)| *key);
            oldest.and_then(|key| held.remove(&key));
        }
        held.insert(key(cookie), Session { name, begun: now });
    }

    /// Whose session it is.
    pub(super) fn find(&self, cookie: &Cookie, now: Instant) -> Option<String> {
        let held = self.held.lock();
        let session = held.get(&key(cookie))?;
        (now.saturating_duration_since(session.begun) < self.lifetime).then(|| session.name.clone())
    }

    pub(super) fn end(&self, cookie: &Cookie) {
        self.held.lock().remove(&key(cookie));
    }
}

fn key(cookie: &Cookie) -> [u8; 32] {
    *blake3::hash(cookie.bytes()).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_by_itself_and_when_it_is_ended() {
        let hour = Duration::from_secs(3600);
        let (sessions, now) = (Sessions::new(hour), Instant::now());
        let (ana, ben) = (Cookie::random().unwrap(), Cookie::random().unwrap());
        sessions.begin(&ana, "ana".to_owned(), now);
        sessions.begin(&ben, "ben".to_owned(), now);
        assert_eq!(sessions.find(&ana, now + hour / 2).as_deref(), Some("ana"));
        sessions.end(&ben);
        assert_eq!(sessions.find(&ben, now), None);
        assert_eq!(sessions.find(&ana, now + hour), None);
    }
}
