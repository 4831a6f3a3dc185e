resource "aws_s3_bucket_lifecycle_configuration" "lake" {
  bucket = aws_s3_bucket.this["lake"].id

  rule {
    id     = "what-was-deleted"
    status = "Enabled"
    filter {}
    # Maintenance deletes what no snapshot names; this is for how long that was not final.
    noncurrent_version_expiration {
      noncurrent_days = var.noncurrent_days
    }
    expiration {
      expired_object_delete_marker = true
    }
    abort_incomplete_multipart_upload {
      days_after_initiation = 3
    }
  }

  rule {
    id     = "checkpoints"
    status = "Enabled"
    filter {
      prefix = "${var.warehouse_prefix}/_checkpoints/"
    }
    # They are made anew from the log where they are missing, and Spark deletes those of old epochs by itself.
    expiration {
      days = var.checkpoint_days
    }
    noncurrent_version_expiration {
      noncurrent_days = 1
    }
  }

  depends_on = [aws_s3_bucket_versioning.this]
}

resource "aws_s3_bucket_lifecycle_configuration" "artifacts" {
  bucket = aws_s3_bucket.this["artifacts"].id

  rule {
    id     = "what-was-deleted"
    status = "Enabled"
    filter {}
    # So long a release that was written over can be had back.
    noncurrent_version_expiration {
      noncurrent_days = max(var.noncurrent_days, 30)
    }
    expiration {
      expired_object_delete_marker = true
    }
    abort_incomplete_multipart_upload {
      days_after_initiation = 3
    }
  }

  dynamic "rule" {
    for_each = toset(["logs", "outcomes"])
    content {
      id     = rule.value
      status = "Enabled"
      filter {
        prefix = "${var.artifacts_prefix}/${rule.value}/"
      }
      expiration {
        days = var.log_days
      }
      noncurrent_version_expiration {
        noncurrent_days = 1
      }
    }
  }

  depends_on = [aws_s3_bucket_versioning.this]
}
