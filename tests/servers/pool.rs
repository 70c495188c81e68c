//! Servers that take long to start, kept between the cases that use them.

use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is idle. A case that takes something has it to itself.
pub(crate) struct Pool<T: 'static>(Mutex<Vec<T>>);

impl<T> Pool<T> {
    pub(crate) const fn new() -> Pool<T> {
        Pool(Mutex::new(Vec::new()))
    }

    /// Something idle, or something new.
    pub(crate) fn take(&'static self, start: impl FnOnce() -> T) -> Pooled<T> {
        let idle = self.0.lock().expect("no panic").pop();
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
            && let Ok(mut idle) = self.pool.0.lock()
        {
            idle.push(value);
        }
    }
}
