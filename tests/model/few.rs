//! A handful of things, kept in place: worlds are copied millions of times.

use std::ops::{Deref, DerefMut};

#[derive(Clone, Copy)]
pub(crate) struct Few<T, const N: usize> {
    len: u8,
    items: [T; N],
}

impl<T: Copy + Default, const N: usize> Default for Few<T, N> {
    fn default() -> Self {
        Few { len: 0, items: [T::default(); N] }
    }
}

impl<T: Copy + Default, const N: usize> Few<T, N> {
    pub(crate) fn push(&mut self, item: T) {
        self.items[usize::from(self.len)] = item;
        self.len += 1;
    }

    /// Takes one out; the last takes its place.
    pub(crate) fn take(&mut self, index: usize) -> T {
        self.len -= 1;
        let item = self.items[index];
        self.items[index] = self.items[usize::from(self.len)];
        item
    }
}

impl<T: Copy + Default, const N: usize> FromIterator<T> for Few<T, N> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut few = Few::default();
        items.into_iter().for_each(|item| few.push(item));
        few
    }
}

impl<T, const N: usize> Deref for Few<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }
}

impl<T, const N: usize> DerefMut for Few<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items[..usize::from(self.len)]
    }
}
