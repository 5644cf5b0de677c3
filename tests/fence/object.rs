//! Marks in objects: stores that lose answers, that ignore conditions, that have none.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use ringfence::fence::{Fence, FenceError, FenceTarget, object::Guarded};
use ringfence::locks::{ClusterId, Token};
use tokio::sync::Notify;
use tokio_stream::Stream;

use crate::stories::{assert_answer, exclusive, name, shared, stories};

/// What befalls the call with the number that [`Faulty`] is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The caller is gone before the store has the call.
    EndsBefore,
    /// The caller is gone before it has the answer.
    EndsAfter,
    /// The answer is lost, and the call sent again.
    SentAgain,
    /// Another has written before this arrives: so do this and all later ones find it.
    Overtaken,
    /// No condition is looked at.
    Careless,
}

/// A store with trouble on the way to it.
#[derive(Debug)]
pub struct Faulty {
    store: Arc<InMemory>,
    trouble: Trouble,
    at: usize,
    calls: AtomicUsize,
    ended: Notify,
}

impl Faulty {
    pub fn new(store: Arc<InMemory>, trouble: Trouble, at: usize) -> Self {
        Self { store, trouble, at, calls: AtomicUsize::new(0), ended: Notify::new() }
    }

    /// Returns once the caller is gone.
    pub async fn ended(&self) {
        self.ended.notified().await;
    }

    fn troubled(&self, trouble: Trouble) -> bool {
        self.trouble == trouble && self.calls.load(Ordering::SeqCst) == self.at
    }

    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.troubled(Trouble::EndsBefore) {
            self.gone().await;
        }
        let answer = call.await;
        if self.troubled(Trouble::EndsAfter) {
            self.gone().await;
        }
        answer
    }

    async fn gone(&self) -> ! {
        self.ended.notify_one();
        std::future::pending().await
    }

    async fn put(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> PutAnswer {
        if self.trouble == Trouble::Overtaken && matches!(opts.mode, PutMode::Update(_)) {
            let there = self.store.get(location).await?.bytes().await?;
            self.store.put(location, there.into()).await?;
        }
        if self.trouble == Trouble::Careless {
            return self.store.put(location, payload).await;
        }
        let answer = self.store.put_opts(location, payload.clone(), opts.clone()).await;
        if self.troubled(Trouble::SentAgain) {
            return self.store.put_opts(location, payload, opts).await;
        }
        answer
    }
}

type PutAnswer = Result<PutResult>;
type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T>> + Send>>;

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

/// As the trait's macro writes it; what the adapter does not call is not there.
impl ObjectStore for Faulty {
    fn put_opts<'s, 'l, 'a>(
        &'s self,
        location: &'l Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Answer<'a, PutResult>
    where
        's: 'a,
        'l: 'a,
    {
        Box::pin(self.call(self.put(location, payload, opts)))
    }

    fn get_opts<'s, 'l, 'a>(
        &'s self,
        location: &'l Path,
        options: GetOptions,
    ) -> Answer<'a, GetResult>
    where
        's: 'a,
        'l: 'a,
    {
        Box::pin(self.call(self.store.get_opts(location, options)))
    }

    fn put_multipart_opts<'s, 'l, 'a>(
        &'s self,
        location: &'l Path,
        _: PutMultipartOptions,
    ) -> Answer<'a, Box<dyn MultipartUpload>>
    where
        's: 'a,
        'l: 'a,
    {
        unreachable!("{location}")
    }

    fn delete_stream(&self, locations: Answers<Path>) -> Answers<Path> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> Answers<ObjectMeta> {
        self.store.list(prefix)
    }

    fn list_with_delimiter<'s, 'l, 'a>(&'s self, prefix: Option<&'l Path>) -> Answer<'a, ListResult>
    where
        's: 'a,
        'l: 'a,
    {
        self.store.list_with_delimiter(prefix)
    }

    fn copy_opts<'s, 'f, 't, 'a>(
        &'s self,
        from: &'f Path,
        to: &'t Path,
        _: CopyOptions,
    ) -> Answer<'a, ()>
    where
        's: 'a,
        'f: 'a,
        't: 'a,
    {
        unreachable!("{from} to {to}")
    }
}

fn location() -> Path {
    Path::from("jobs/7")
}

async fn destination() -> (Arc<InMemory>, Guarded) {
    let store = Arc::new(InMemory::new());
    let object = Guarded::new(store.clone(), location());
    object.install().await.expect("it keeps conditions");
    (store, object)
}

async fn write(object: &Guarded, number: u64) -> std::result::Result<(), FenceError> {
    object.replace(&[exclusive("job/7", number)], format!("by {number}")).await
}

async fn payload(object: &Guarded) -> Option<String> {
    let payload = object.read().await.expect("installed")?;
    Some(String::from_utf8(payload.into()).expect("text"))
}

async fn job_mark(object: &Guarded) -> Option<u64> {
    object.mark(&name("job/7"), None).await.expect("installed").map(Token::get)
}

#[tokio::test]
async fn objects_tell_every_story() {
    let (_, object) = destination().await;
    for story in stories() {
        for step in story.steps() {
            let answer = object.raise(std::slice::from_ref(&step.fence)).await;
            assert_answer(story.resource, &step, answer);
        }
    }
}

#[tokio::test]
async fn a_raise_keeps_the_payload_and_the_trial_of_the_store_leaves_nothing() {
    let (store, object) = destination().await;
    assert_eq!(payload(&object).await, None);
    write(&object, 5).await.expect("the first owner");
    object.install().await.expect("it does nothing the second time");
    let raised = object.target().raise(&[exclusive("job/7", 6)], Duration::from_secs(60)).await;
    raised.expect("nobody writes");
    assert_eq!(object.target().name(), "object:jobs/7");
    assert_eq!(payload(&object).await.as_deref(), Some("by 5"));
    assert_eq!(job_mark(&object).await, Some(6));
    let stale = write(&object, 5).await.expect_err("a later owner has been here");
    assert_eq!(stale.to_string(), "stale fence: token 5 is below the mark 6 of job/7");
    assert_eq!(payload(&object).await.as_deref(), Some("by 5"));
    let there = store.list_with_delimiter(Some(&Path::from("jobs"))).await.expect("memory");
    assert_eq!(there.objects.len(), 1);
}

#[tokio::test]
async fn a_write_between_the_check_and_the_put_is_found_and_judged_again() {
    let (_, object) = destination().await;
    let (other, mut calls) = (object.clone(), 0);
    let fences = [exclusive("job/7", 5)];
    let late = object.update(&fences, |old| {
        calls += 1;
        assert_eq!(old, None);
        // Past the check: a later owner raises, on a thread of its own.
        std::thread::scope(|scope| {
            let raise = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                let fences = [exclusive("job/7", 6)];
                runtime.expect("a runtime").block_on(other.raise(&fences))
            });
            raise.join().expect("it ran to its end").expect("the later owner");
        });
        Bytes::from("by 5")
    });
    let late = late.await;
    assert!(matches!(late, Err(FenceError::Stale { .. })), "{late:?}");
    assert_eq!((calls, payload(&object).await, job_mark(&object).await), (1, None, Some(6)));
}

#[tokio::test]
async fn a_put_that_was_applied_and_sent_again_is_known_and_not_applied_twice() {
    let (store, object) = destination().await;
    let faulty = Arc::new(Faulty::new(store, Trouble::SentAgain, 2));
    let troubled = Guarded::new(faulty, location());
    let mut calls = 0;
    let append = |old: Option<&Bytes>| {
        calls += 1;
        Bytes::from([old.map_or(&[][..], |old| old), b"line"].concat())
    };
    troubled.update(&[exclusive("job/7", 5)], append).await.expect("it was applied");
    assert_eq!((calls, payload(&object).await.as_deref()), (1, Some("line")));
}

#[tokio::test]
async fn a_call_that_is_overtaken_every_time_gives_up_and_has_written_nothing() {
    let (store, object) = destination().await;
    let faulty = Arc::new(Faulty::new(store, Trouble::Overtaken, 0));
    let overtaken = write(&Guarded::new(faulty.clone(), location()), 5).await;
    assert!(matches!(overtaken, Err(FenceError::Conflict(_))), "{overtaken:?}");
    let attempts = usize::try_from(ringfence::fence::object::ATTEMPTS_MAX).expect("small");
    assert_eq!(faulty.calls.load(Ordering::SeqCst), 2 * attempts);
    assert_eq!((payload(&object).await, job_mark(&object).await), (None, None));
}

#[tokio::test]
async fn a_raise_that_the_store_does_not_answer_is_busy() {
    let (store, _) = destination().await;
    let faulty = Arc::new(Faulty::new(store, Trouble::EndsBefore, 1));
    let target = Guarded::new(faulty, location()).target();
    let late = target.raise(&[exclusive("job/7", 5)], Duration::from_millis(20)).await;
    assert!(matches!(late, Err(FenceError::Busy(_))), "{late:?}");
}

#[tokio::test]
async fn stores_that_have_no_conditional_put_or_do_not_keep_it_are_refused() {
    let store = Arc::new(InMemory::new());
    let careless = Faulty::new(Arc::clone(&store), Trouble::Careless, 0);
    let refused = Guarded::new(Arc::new(careless), location()).install().await;
    let refused = refused.expect_err("it lets everything through").to_string();
    assert_eq!(refused, "the store failed: Faulty does not keep the condition of a put");
    assert!(store.get(&location()).await.is_err(), "nothing was made");

    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let local = LocalFileSystem::new_with_prefix(folder.path()).expect("it is there");
    let local = Arc::new(local);
    let refused = Guarded::new(local.clone(), location()).install().await;
    let refused = refused.expect_err("it has none").to_string();
    assert!(refused.contains("no conditional put"), "{refused}");
    assert!(local.get(&location()).await.is_err(), "nothing was made");
}

#[tokio::test]
async fn malformed_and_foreign_fences_are_refused_and_adoption_moves_no_mark() {
    let (_, object) = destination().await;
    let malformed = object.replace(&[shared("job/7", 5, 6)], "").await;
    assert!(matches!(malformed, Err(FenceError::FloorAboveToken { .. })), "{malformed:?}");
    for set in [&[][..], &[exclusive("job/7", 5), exclusive("job/7", 6)]] {
        let refused = object.replace(set, "").await;
        assert!(matches!(refused, Err(FenceError::Set)), "{refused:?}");
    }
    assert_eq!(payload(&object).await, None);
    write(&object, 5).await.expect("the first authority");
    let (old, new) = (exclusive("job/7", 5).cluster, ClusterId::new([8; 16]));
    let restored = [Fence { cluster: new, ..exclusive("job/7", 900) }];
    let foreign = object.replace(&restored, "foreign").await;
    assert!(
        matches!(foreign, Err(FenceError::ForeignCluster { known, offered, .. })
            if (known, offered) == (old, new)),
        "{foreign:?}"
    );
    assert_eq!(payload(&object).await.as_deref(), Some("by 5"));
    assert_eq!(object.adopt(old, new).await.expect("installed"), 1);
    assert_eq!(job_mark(&object).await, Some(5));
    object.raise(&restored).await.expect("adopted");
}

#[tokio::test]
async fn what_is_missing_newer_or_damaged_is_refused_and_left_as_it_is() {
    let (store, object) = destination().await;
    write(&object, 5).await.expect("the first owner");
    let whole = store.get(&location()).await.expect("there").bytes().await.expect("memory");
    let text = std::str::from_utf8(&whole).expect("text");
    let newer = text.replace("object 1\n", "object 2\n");
    let changed = text.replace("mark 5", "mark 4");
    let longer = format!("{text}more");
    for (there, is_newer) in [
        ("", false),
        ("a report", false),
        (&*changed, false),
        (&*longer, false),
        (&text[..text.len() - 1], false),
        (&*newer, true),
    ] {
        store.put(&location(), there.to_owned().into()).await.expect("memory");
        for answer in [
            write(&object, 6).await,
            object.raise(&[exclusive("job/7", 6)]).await,
            object.install().await,
            object.read().await.map(drop),
            object.mark(&name("job/7"), None).await.map(drop),
        ] {
            let error = answer.expect_err("nothing can be told");
            let expected = match &error {
                FenceError::SchemaNewer { found: 2, known: 1 } => is_newer,
                FenceError::Store(_) => !is_newer,
                other => panic!("{there}: {other:?}"),
            };
            assert!(expected, "{there}: {error:?}");
        }
        let left = store.get(&location()).await.expect("there").bytes().await.expect("memory");
        assert_eq!(left, there);
    }
    store.delete(&location()).await.expect("memory");
    let missing = write(&object, 6).await;
    assert!(matches!(missing, Err(FenceError::SchemaMissing)), "{missing:?}");
    assert!(store.get(&location()).await.is_err(), "no write makes marks anew");
}

/// Several objects under one fence: one that names them is guarded.
#[tokio::test]
async fn what_a_stale_owner_puts_beside_is_never_named() {
    let (store, manifest) = destination().await;
    let publish = async |token: u64| {
        let mut names = String::new();
        for part in 0..3 {
            let part = Path::from(format!("jobs/7.parts/{token}-{part}"));
            let content = format!("by {token}").into();
            store.put_opts(&part, content, PutMode::Create.into()).await.expect("unused");
            names.push_str(&format!("{part}\n"));
        }
        manifest.replace(&[exclusive("job/7", token)], names).await
    };
    publish(5).await.expect("the first owner");
    publish(7).await.expect("a later one");
    let stale = publish(6).await;
    assert!(matches!(stale, Err(FenceError::Stale { .. })), "{stale:?}");
    let names = payload(&manifest).await.expect("published");
    for part in names.lines() {
        let part = store.get(&Path::from(part)).await.expect("named").bytes().await;
        assert_eq!(part.expect("memory"), "by 7");
    }
    assert_eq!(names.lines().count(), 3);
}
