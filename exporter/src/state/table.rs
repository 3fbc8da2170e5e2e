//! Values that are known by their place.

use std::{
    ops::{Index, IndexMut},
    slice,
};

/// Values that are added and never taken out, so that the place of one is its id for good.
#[derive(Debug)]
pub(crate) struct Table<T>(Vec<T>);

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a value; gives its id.
    pub(crate) fn push(&mut self, value: T) -> usize {
        self.0.push(value);
        self.0.len() - 1
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> slice::Iter<'_, T> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> slice::IterMut<'_, T> {
        self.0.iter_mut()
    }
}

#[expect(clippy::indexing_slicing, reason = "ids are what push gave, and nothing is taken out")]
impl<T> Index<usize> for Table<T> {
    type Output = T;

    fn index(&self, id: usize) -> &T {
        &self.0[id]
    }
}

#[expect(clippy::indexing_slicing, reason = "ids are what push gave, and nothing is taken out")]
impl<T> IndexMut<usize> for Table<T> {
    fn index_mut(&mut self, id: usize) -> &mut T {
        &mut self.0[id]
    }
}
