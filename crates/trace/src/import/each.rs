//! JSON that is processed one element at a time, without keeping elements.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::input::Budget;

/// A list, or null; each element is handed on as soon as it is read.
pub(super) struct Each<'a, T, F> {
    budget: &'a Budget,
    take: F,
    element: PhantomData<T>,
}

impl<'a, T, F: FnMut(T) -> Result<(), String>> Each<'a, T, F> {
    pub fn new(budget: &'a Budget, take: F) -> Self {
        Self {
            budget,
            take,
            element: PhantomData,
        }
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> DeserializeSeed<'de>
    for Each<'_, T, F>
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> Visitor<'de> for Each<'_, T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element()? {
            self.budget.renew();
            (self.take)(element).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// What [`Keys`] does with a value.
pub(super) trait Members {
    /// Reads the value of `key` from `map`, or skips it with [`skip`].
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;
}

/// Skips a value.
pub(super) fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(|_| ())
}

/// An object, or null; each member is handed on as soon as it is read.
pub(super) struct Keys<'a, M> {
    pub budget: &'a Budget,
    pub members: M,
}

impl<'de, M: Members> DeserializeSeed<'de> for Keys<'_, M> {
    type Value = M;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<M, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, M: Members> Visitor<'de> for Keys<'_, M> {
    type Value = M;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<M, E> {
        Ok(self.members)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<M, A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            self.budget.renew();
            self.members.member(&key, &mut map)?;
        }
        Ok(self.members)
    }
}
