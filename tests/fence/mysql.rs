//! Marks in a real MariaDB.
