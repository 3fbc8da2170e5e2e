//! The environment that every expression is compiled for and runs in.

use std::sync::{Arc, LazyLock};

use cel::Env;

use crate::{bounded, library};

pub(super) fn environment() -> Arc<Env> {
    static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
        let mut env = Env::stdlib();
        // No name is declared twice, so that this cannot fail; a test says so.
        let _ = declare(&mut env);
        Arc::new(env)
    });
    Arc::clone(&ENVIRONMENT)
}

fn declare(env: &mut Env) -> Result<(), cel::DeclarationError> {
    library::declare(env)?;
    bounded::declare(env)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_function_is_declared_twice() {
        assert_eq!(declare(&mut Env::stdlib()), Ok(()));
    }
}
