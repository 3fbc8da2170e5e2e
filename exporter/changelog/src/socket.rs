//! The unix socket: it appears complete, and replaces the socket of a dead process.

use std::{
    fs::{self, Permissions},
    io::ErrorKind,
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use tokio::net::UnixListener;

/// A listening socket. Dropping it removes its file, unless another process has replaced the file by then.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) listener: UnixListener,
    _file: File,
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

impl Socket {
    /// Listens on `path`, a file of mode `mode`: write permission lets a process connect.
    ///
    /// # Errors
    /// When another process listens on `path`, or may do so; when the file is not a socket; when it cannot be made.
    pub(crate) fn bind(path: &Path, mode: u32) -> anyhow::Result<Self> {
        let shown = path.display();
        match fs::symlink_metadata(path) {
            Ok(there) if !there.file_type().is_socket() => bail!("{shown} exists and is not a socket"),
            Ok(_) => match UnixStream::connect(path) {
                Ok(_) => bail!(
                    "another process listens on {shown} already: is there a second change-log sidecar in this pod?"
                ),
                // A killed process leaves its socket behind.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("cannot tell whether another process listens on {shown}"));
                }
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot look at {shown}")),
        }
        let (Some(directory), Some(_)) = (path.parent(), path.file_name()) else {
            bail!("{shown} does not name a file in a directory")
        };
        // Made beside it and then moved: a provider finds either no socket, the dead one, or one that it may use.
        let new = directory.join(format!(".{}", std::process::id()));
        let _ = fs::remove_file(&new);
        let made = Self::make(&new, path, mode);
        if made.is_err() {
            let _ = fs::remove_file(&new);
        }
        made.with_context(|| format!("cannot listen on {shown}"))
    }

    fn make(new: &Path, path: &Path, mode: u32) -> anyhow::Result<Self> {
        let listener = UnixListener::bind(new)?;
        fs::set_permissions(new, Permissions::from_mode(mode))?;
        let there = fs::symlink_metadata(new)?;
        fs::rename(new, path)?;
        let file = File { path: path.to_owned(), id: (there.dev(), there.ino()) };
        Ok(Self { listener, _file: file })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|there| (there.dev(), there.ino()) == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Parses a file's mode, in octal as for chmod.
pub(crate) fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("expected an octal mode from 0 to 0777, such as 0660".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[tokio::test]
    async fn a_dead_socket_is_replaced_by_one_with_the_mode_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        // Its file stays, as after a kill.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists() && UnixStream::connect(&path).is_err());

        let socket = Socket::bind(&path, 0o660).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        UnixStream::connect(&path).unwrap();
        assert_eq!(names(directory.path()), ["s.sock"]);
        drop(socket);
        assert_eq!(names(directory.path()), [""; 0]);
    }

    #[tokio::test]
    async fn a_live_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let first = Socket::bind(&path, 0o600).unwrap();
        let refused = Socket::bind(&path, 0o666).unwrap_err();
        assert!(refused.to_string().contains("another process listens"), "{refused:#}");
        UnixStream::connect(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(first);
    }

    /// As when connecting is forbidden, or the socket is of another type.
    #[tokio::test]
    async fn a_socket_that_cannot_be_tried_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let other = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        let refused = Socket::bind(&path, 0o660).unwrap_err();
        assert!(refused.to_string().contains("cannot tell whether another process listens"), "{refused:#}");
        std::os::unix::net::UnixDatagram::unbound().unwrap().send_to(b"there", &path).unwrap();
        assert_eq!(other.recv(&mut [0; 8]).unwrap(), 5);
    }

    #[tokio::test]
    async fn the_file_of_a_successor_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let first = Socket::bind(&path, 0o600).unwrap();
        fs::remove_file(&path).unwrap();
        let second = Socket::bind(&path, 0o600).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_file_that_is_not_a_socket_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        fs::write(&path, "precious").unwrap();
        assert!(Socket::bind(&path, 0o600).unwrap_err().to_string().contains("is not a socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        let nowhere = Socket::bind(&directory.path().join("missing/s.sock"), 0o600).unwrap_err();
        assert!(format!("{nowhere:#}").contains("No such file"), "{nowhere:#}");
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(mode("0660"), Ok(0o660));
        assert_eq!(mode("777"), Ok(0o777));
        for wrong in ["", "0x1", "1777", "68", "-1"] {
            assert!(mode(wrong).is_err(), "{wrong}");
        }
    }
}
