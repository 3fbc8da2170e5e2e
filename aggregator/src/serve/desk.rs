//! Questions to the main loop, from whoever answers others.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use statusbridge_core::reconcile::judge::World;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Questions that wait at the same time: the rest wait for a place.
const WAITING: usize = 4;
/// How long a question may take altogether.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What is done with all that is known at one moment.
pub type Question = Box<dyn FnOnce(&World<'_>) + Send>;

/// Where the loop that judges takes questions; there may be none, and another one later.
#[derive(Debug, Default)]
pub struct Desk(Mutex<Option<mpsc::Sender<Question>>>);

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// This process judges nothing.
    #[error("this aggregator does not judge now: another one leads, or none")]
    Nobody,
    /// The loop has more to do.
    #[error("this aggregator had no time to answer within {} s", PATIENCE.as_secs())]
    Busy,
}

impl Desk {
    /// A loop begins to answer. Those that wait for an earlier one get no answer.
    pub fn open(&self) -> mpsc::Receiver<Question> {
        let (sender, receiver) = mpsc::channel(WAITING);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    /// What `question` makes of all that is known.
    ///
    /// # Errors
    /// When no loop answers, or none in time.
    pub async fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&World<'_>) -> R + Send + 'static,
    ) -> Result<R, Unanswered> {
        let loop_ = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sender = loop_.ok_or(Unanswered::Nobody)?;
        let (reply, answer) = oneshot::channel();
        // Who no longer waits is not answered.
        let question = Box::new(move |world: &World<'_>| {
            if !reply.is_closed() {
                drop(reply.send(question(world)));
            }
        });
        let asked = async {
            sender.send(question).await.map_err(|_| Unanswered::Nobody)?;
            answer.await.map_err(|_| Unanswered::Nobody)
        };
        timeout(PATIENCE, asked).await.unwrap_or(Err(Unanswered::Busy))
    }
}
