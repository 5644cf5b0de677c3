//! Marks in the object that they protect, in an object store with conditional put.
//!
//! The object holds its marks, then the payload. Each write reads it, checks the fences and
//! puts it back on the condition that nobody has changed it (`If-Match` on its e-tag), or else
//! begins again: so no raise comes between. A raise puts the same payload under higher marks.
//!
//! - There is no transaction over several objects. A set whose marks are all in one object is
//!   judged as one; what lies in several objects is published by one that names them: put them
//!   under names that nobody has used, then [`Guarded::replace`] the one. A stale owner's
//!   objects are then never named. Large payloads too: every raise copies what is in here.
//! - The store has to keep the condition: [`Guarded::install`] tries. `LocalFileSystem` of the
//!   crate `object_store` cannot, and is refused; `fence::file` is for directories.
//! - A mark is as durable as the store keeps an answered put. A deleted object has lost its
//!   marks: writes are refused until someone installs. Keep deletion, unconditional puts,
//!   lifecycle rules and a restore of an older version from the application's role.
//! - Nobody holds anything here: a frozen owner holds up no one, and its late put fails.
//!   Holders of a shared resource take turns as all others: under contention a call gives up
//!   with [`FenceError::Conflict`] after [`ATTEMPTS_MAX`] attempts.
//! - A put that is sent again by the client underneath, after an answer that was lost, is
//!   known by its number unless someone else has written since: then the call may apply its
//!   write a second time, or answer stale for one that was applied before the raise.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload, PutResult, UpdateVersion,
};

use super::error::FenceError;
use super::kept::{self, Kept, damaged};
use super::rule::check_set;
use super::target::{FenceTarget, target};
use crate::locks::{ClusterId, Fence, ResourceName, Token};

/// The version that [`Guarded::install`] sets up.
pub const SCHEMA_VERSION: u32 = kept::SCHEMA_VERSION;

/// How often a call begins again because others have changed the object meanwhile.
pub const ATTEMPTS_MAX: u32 = 32;

/// One object with its marks.
#[derive(Debug, Clone)]
pub struct Guarded {
    store: Arc<dyn ObjectStore>,
    location: Path,
}

/// What the object holds: this in front, as [`kept`] text, and then the payload.
struct Envelope {
    /// Of the last change, so that it is known again.
    number: u64,
    kept: BTreeMap<ResourceName, Kept>,
    /// None before the first write.
    payload: Option<Bytes>,
}

impl Guarded {
    /// The object at `location`. Asks the store nothing yet.
    pub fn new(store: Arc<dyn ObjectStore>, location: Path) -> Self {
        Self { store, location }
    }

    /// Tries whether the store keeps conditions, on an object beside this one, and makes the
    /// object, without marks or payload. Does nothing where it is already.
    ///
    /// # Errors
    /// [`FenceError::SchemaNewer`]; [`FenceError::Store`] for a store without conditional put,
    /// and an object that was not made by this.
    pub async fn install(&self) -> Result<(), FenceError> {
        self.keeps_conditions().await?;
        let empty = Envelope { number: rand::random(), kept: BTreeMap::new(), payload: None };
        match self.put(&self.location, empty.into_payload(), PutMode::Create).await {
            Ok(_) => Ok(()),
            Err(Error::AlreadyExists { .. }) => self.get().await.map(drop),
            Err(error) => Err(from_store(error)),
        }
    }

    /// Checks the fences of one grant, raises their marks and gives the object this payload,
    /// in one step. The fences may be in any order, each of another resource; all are
    /// accepted, or none.
    ///
    /// # Errors
    /// [`FenceError::Set`], [`FenceError::Stale`], [`FenceError::FloorAboveToken`],
    /// [`FenceError::ForeignCluster`], [`FenceError::SchemaMissing`] for an object that is not
    /// there, [`FenceError::SchemaNewer`] and [`FenceError::Conflict`]: nothing was written.
    /// [`FenceError::Store`]: what the store says; nobody knows whether a put was applied.
    pub async fn replace(
        &self,
        fences: &[Fence],
        payload: impl Into<Bytes>,
    ) -> Result<(), FenceError> {
        let payload = payload.into();
        self.update(fences, |_| payload.clone()).await
    }

    /// The same with a payload that is made of the one that is there. `write` is called again
    /// if another write has come between.
    ///
    /// # Errors
    /// As [`Self::replace`].
    pub async fn update(
        &self,
        fences: &[Fence],
        mut write: impl FnMut(Option<&Bytes>) -> Bytes,
    ) -> Result<(), FenceError> {
        self.change(|envelope| {
            envelope.check(fences)?;
            envelope.payload = Some(write(envelope.payload.as_ref()));
            Ok(())
        })
        .await
    }

    /// Raises the marks without a write: from its return on, no earlier owner writes here.
    ///
    /// # Errors
    /// As [`Self::replace`].
    pub async fn raise(&self, fences: &[Fence]) -> Result<(), FenceError> {
        self.change(|envelope| envelope.check(fences)).await
    }

    /// The payload; none before the first write. Readers in other languages skip the lines up
    /// to the first that begins with `check`.
    ///
    /// # Errors
    /// [`FenceError::SchemaMissing`], [`FenceError::SchemaNewer`], [`FenceError::Store`].
    pub async fn read(&self) -> Result<Option<Bytes>, FenceError> {
        Ok(self.get().await?.0.payload)
    }

    /// The mark of a resource, or of one of its slots.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn mark(
        &self,
        resource: &ResourceName,
        slot: Option<u32>,
    ) -> Result<Option<Token>, FenceError> {
        let (envelope, _) = self.get().await?;
        Ok(envelope.kept.get(resource).and_then(|kept| kept.mark(slot)))
    }

    /// Takes the marks of authority `from` over for authority `to`, as after a restore;
    /// returns how many resources changed hands. No mark falls.
    ///
    /// # Errors
    /// As [`Self::replace`].
    pub async fn adopt(&self, from: ClusterId, to: ClusterId) -> Result<usize, FenceError> {
        let mut taken = 0;
        self.change(|envelope| {
            let theirs = envelope.kept.values_mut().filter(|kept| kept.cluster == from);
            taken = theirs.map(|kept| kept.cluster = to).count();
            Ok(())
        })
        .await?;
        Ok(taken)
    }

    /// This object as strict handoff sees it.
    pub fn target(&self) -> impl FenceTarget + use<> {
        let object = self.clone();
        target(format!("object:{}", self.location), move |fences: Vec<Fence>, within| {
            let object = object.clone();
            async move {
                let raised = tokio::time::timeout(within, object.raise(&fences)).await;
                raised.unwrap_or_else(|late| Err(FenceError::Busy(Box::new(late))))
            }
        })
    }

    /// Puts what `change` makes of the object, if it is still the one that `change` has seen.
    async fn change(
        &self,
        mut change: impl FnMut(&mut Envelope) -> Result<(), FenceError>,
    ) -> Result<(), FenceError> {
        let number = rand::random();
        let mut attempts = 0;
        loop {
            let (mut envelope, version) = self.get().await?;
            if envelope.number == number {
                // It was applied, and the answer lost underneath.
                return Ok(());
            }
            change(&mut envelope)?;
            envelope.number = number;
            let put = self.put(&self.location, envelope.into_payload(), PutMode::Update(version));
            match put.await {
                Ok(_) => return Ok(()),
                Err(error @ Error::Precondition { .. }) => {
                    attempts += 1;
                    if attempts >= ATTEMPTS_MAX {
                        return Err(FenceError::Conflict(Box::new(error)));
                    }
                }
                Err(error) => return Err(from_store(error)),
            }
        }
    }

    async fn get(&self) -> Result<(Envelope, UpdateVersion), FenceError> {
        let got = self.store.get_opts(&self.location, GetOptions::default()).await;
        let got = got.map_err(from_store)?;
        let version =
            UpdateVersion { e_tag: got.meta.e_tag.clone(), version: got.meta.version.clone() };
        let bytes = got.bytes().await.map_err(from_store)?;
        Ok((Envelope::from_bytes(&bytes)?, version))
    }

    async fn put(
        &self,
        location: &Path,
        payload: PutPayload,
        mode: PutMode,
    ) -> Result<PutResult, Error> {
        self.store.put_opts(location, payload, mode.into()).await
    }

    /// Whether a put on a condition that does not hold is refused, which some stores that
    /// speak the protocol of another do not.
    async fn keeps_conditions(&self) -> Result<(), FenceError> {
        let trial: u64 = rand::random();
        let trial = Path::from(format!("{}.ringfence-trial-{trial:016x}", self.location));
        let kept = self.refuses(&trial).await;
        // One that stays is in nobody's way.
        let _ = self.store.delete(&trial).await;
        if kept.map_err(from_store)? {
            return Ok(());
        }
        let why = format!("{} does not keep the condition of a put", self.store);
        Err(FenceError::Store(why.into()))
    }

    async fn refuses(&self, trial: &Path) -> Result<bool, Error> {
        let put = |text: &'static str, mode| self.put(trial, text.into(), mode);
        let first: UpdateVersion = put("first", PutMode::Create).await?.into();
        put("second", PutMode::Update(first.clone())).await?;
        for mode in [PutMode::Create, PutMode::Update(first)] {
            match put("third", mode).await {
                Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => {}
                Err(error) => return Err(error),
                Ok(_) => return Ok(false),
            }
        }
        Ok(true)
    }
}

impl Envelope {
    /// Judges the fences as one, and raises the marks if all pass.
    fn check(&mut self, fences: &[Fence]) -> Result<(), FenceError> {
        check_set(fences)?;
        let mut fences: Vec<&Fence> = fences.iter().collect();
        fences.sort_by(|one, other| one.resource.cmp(&other.resource));
        let judge = |fence: &Fence| {
            let kept = Kept::after(self.kept.get(&fence.resource).cloned(), fence)?;
            Ok((fence.resource.clone(), kept))
        };
        let judged: Vec<_> = fences.into_iter().map(judge).collect::<Result<_, FenceError>>()?;
        self.kept.extend(judged);
        Ok(())
    }

    fn into_payload(self) -> PutPayload {
        let payload = self.payload.as_ref().map_or("none".to_owned(), |p| p.len().to_string());
        let head = format!("number {:016x}\npayload {payload}\n", self.number);
        let head = kept::sealed("object", &(head + &kept::lines(&self.kept)));
        [Bytes::from(head)].into_iter().chain(self.payload).collect()
    }

    fn from_bytes(bytes: &Bytes) -> Result<Self, FenceError> {
        let (lines, rest) = kept::unsealed("object", bytes)?;
        let read = || {
            let (number, lines) = lines.strip_prefix("number ")?.split_once('\n')?;
            let (length, lines) = lines.strip_prefix("payload ")?.split_once('\n')?;
            let payload = match length {
                "none" => rest.is_empty().then_some(None)?,
                length => {
                    (length.parse() == Ok(rest.len())).then(|| Some(bytes.slice_ref(rest)))?
                }
            };
            Some((u64::from_str_radix(number, 16).ok()?, payload, lines))
        };
        let (number, payload, lines) = read().ok_or_else(|| damaged("the object"))?;
        Ok(Self { number, kept: kept::from_lines(lines)?, payload })
    }
}

fn from_store(error: Error) -> FenceError {
    match error {
        Error::NotFound { .. } => FenceError::SchemaMissing,
        Error::NotImplemented { .. } | Error::NotSupported { .. } => FenceError::Store(
            format!("the object store has no conditional put, so it cannot be guarded: {error}")
                .into(),
        ),
        _ => FenceError::Store(Box::new(error)),
    }
}
