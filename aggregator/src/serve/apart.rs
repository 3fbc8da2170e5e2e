//! A stream that another task drives.

use std::panic::resume_unwind;

use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The same stream, driven by a task of its own, one item ahead: whoever reads it is woken for whole items only. The task
/// ends with the stream that is returned, and whoever reads that panics if the task does.
pub(crate) fn apart<T: Send + 'static>(mut items: BoxStream<'static, T>) -> BoxStream<'static, T> {
    let (sender, receiver) = mpsc::channel(1);
    let mut task = JoinSet::new();
    task.spawn(async move {
        while let Ok(place) = sender.reserve().await
            && let Some(item) = items.next().await
        {
            place.send(item);
        }
    });
    let next = |(mut receiver, mut task): (mpsc::Receiver<T>, JoinSet<()>)| async move {
        match receiver.recv().await {
            Some(item) => Some((item, (receiver, task))),
            None => match task.join_next().await {
                Some(Err(error)) if error.is_panic() => resume_unwind(error.into_panic()),
                _ => None,
            },
        }
    };
    stream::unfold((receiver, task), next).boxed()
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::sync::Arc;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn all_comes_in_order_and_then_the_end() {
        let read: Vec<u32> = apart(stream::iter(0..100).boxed()).collect().await;
        assert_eq!(read, (0..100).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn whoever_reads_a_stream_that_panics_does_not_take_it_for_ended() {
        let broken = stream::iter([1, 2]).map(|it| if it == 2 { panic!("broken") } else { it });
        let mut broken = apart(broken.boxed());
        assert_eq!(broken.next().await, Some(1));
        assert!(AssertUnwindSafe(broken.next()).catch_unwind().await.is_err());
    }

    #[tokio::test]
    async fn the_task_ends_with_its_reader() {
        let held = Arc::new(());
        let own = held.clone();
        let mut endless = apart(stream::pending::<()>().map(move |()| drop(own.clone())).boxed());
        assert!(endless.next().now_or_never().is_none());
        drop(endless);
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
