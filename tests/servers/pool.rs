//! Servers that take long to start, kept between the cases that use them.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once};

/// What is idle. A case that takes something has it to itself.
pub(crate) struct Pool<T: 'static> {
    idle: Mutex<Vec<T>>,
    listed: Once,
}

/// How the pools are emptied that were used.
static USED: Mutex<Vec<Box<dyn Fn() + Send>>> = Mutex::new(Vec::new());

/// Drops what is idle, at the end of a test binary: the system would end the servers and leave
/// their directories.
pub(crate) fn drop_idle() {
    let used = std::mem::take(&mut *USED.lock().expect("no panic"));
    used.iter().for_each(|empty| empty());
}

impl<T: Send> Pool<T> {
    pub(crate) const fn new() -> Pool<T> {
        Pool { idle: Mutex::new(Vec::new()), listed: Once::new() }
    }

    /// Something idle, or something new.
    pub(crate) fn take(&'static self, start: impl FnOnce() -> T) -> Pooled<T> {
        self.listed.call_once(|| {
            let empty = || drop(std::mem::take(&mut *self.idle.lock().expect("no panic")));
            USED.lock().expect("no panic").push(Box::new(empty));
        });
        let idle = self.idle.lock().expect("no panic").pop();
        Pooled { value: Some(idle.unwrap_or_else(start)), pool: self, spoilt: AtomicBool::new(false) }
    }
}

/// Something that goes back when this is dropped, unless it is spoilt or the case failed.
pub(crate) struct Pooled<T: 'static> {
    /// There until it goes back.
    value: Option<T>,
    pool: &'static Pool<T>,
    spoilt: AtomicBool,
}

impl<T> Pooled<T> {
    /// It is about to be hurt, and is of no use to another case.
    pub(crate) fn spoil(&self) {
        self.spoilt.store(true, Ordering::Release);
    }
}

impl<T> Deref for Pooled<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it has not gone back yet")
    }
}

impl<T> Drop for Pooled<T> {
    fn drop(&mut self) {
        if !self.spoilt.load(Ordering::Acquire)
            && !std::thread::panicking()
            && let Some(value) = self.value.take()
            && let Ok(mut idle) = self.pool.idle.lock()
        {
            idle.push(value);
        }
    }
}
